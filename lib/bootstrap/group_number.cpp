#include "lib/bootstrap/group_number.hpp"

#include <algorithm>
#include <map>
#include <mutex>

namespace lockstep::internal {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> met;

  // Outlives every static communicator.
  static Counts& instance() {
    static auto* counts = new Counts;
    return *counts;
  }
};

}  // namespace

std::uint64_t groups_met(const std::string& place) {
  Counts& counts = Counts::instance();
  std::lock_guard lock(counts.mutex);
  return counts.met[place];
}

void group_has_met(const std::string& place, std::uint64_t number) {
  Counts& counts = Counts::instance();
  std::lock_guard lock(counts.mutex);
  std::uint64_t& met = counts.met[place];
  met = std::max(met, number);
}

}  // namespace lockstep::internal
