#include "ddp/checkpoint/agreement.hpp"

#include <array>
#include <cstdint>

namespace lockstep::internal {

Status agree(Communicator& communicator, const Status& mine) {
  using Verdict = std::array<std::uint64_t, 2>;  // Code, length of the message.
  const Verdict own{static_cast<std::uint64_t>(mine.code()), mine.message().size()};
  std::vector<Verdict> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(own.data(), all.data(), own.size(), DataType::u64);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r][0] == 0) continue;
    std::string message = mine.message();
    message.resize(all[r][1]);
    communicator.broadcast(message.data(), message.size(), DataType::u8, static_cast<int>(r));
    return Status(static_cast<ErrorCode>(all[r][0]), "rank " + std::to_string(r) + ": " + message,
                  static_cast<int>(r));
  }
  return {};
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine) {
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&length, lengths.data(), 1, DataType::u64);
  const bool root = communicator.rank() == 0;
  std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::string all(root ? total : 0, '\0');
  communicator.gather_v(mine.data(), mine.size(), all.data(), counts, DataType::u8, 0);
  std::vector<std::string> texts;
  for (std::size_t r = 0, at = 0; root && r < counts.size(); at += counts[r++]) {
    texts.push_back(all.substr(at, counts[r]));
  }
  return texts;
}

}  // namespace lockstep::internal
