#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "collectives/programs/blocks.hpp"
#include "collectives/verify/verify.hpp"

namespace lockstep::internal {
namespace {

TEST(Proof, Quick) {
  for (const Algorithm& row : algorithms()) {
    auto t0 = std::chrono::steady_clock::now();
    for (int n = 1; n <= 12; ++n) {
      for (int root = 0; root < n; ++root) {
        const auto N = static_cast<std::uint64_t>(n);
        for (std::uint64_t count :
             {std::uint64_t{0}, std::uint64_t{1}, N - 1, N, N + 1, std::uint64_t{1000003}}) {
          for (std::uint64_t segment : {std::uint64_t{0}, count / (3 * N) + 1}) {
            Shape shape;
            shape.collective = row.collective;
            shape.world = n;
            shape.root = root;
            shape.count = count;
            shape.segment = segment;
            shape.staging = 3 * N * (count / (4 * N) + 1);
            if (has_counts(row.collective)) {
              for (std::uint64_t i = 0; i < N; ++i) shape.counts.push_back(count * (i % 4) / 2 + (i == 2));
            }
            if (!row.supports(shape)) continue;
            auto s = verify_algorithm(row, shape);
            if (!s.empty()) {
              ADD_FAILURE() << name_of(row.collective) << " " << row.name << " medium " << int(row.medium)
                            << " n " << n << " root " << root << " count " << count << " segment " << segment
                            << ": " << s;
              goto next;
            }
          }
        }
      }
    }
  next:;
    std::printf("%s %s %d: %.3f s\n", std::string(name_of(row.collective)).c_str(),
                std::string(row.name).c_str(), int(row.medium),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
  }
}

}  // namespace
}  // namespace lockstep::internal
