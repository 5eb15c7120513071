#include "lib/net/progress_roster.hpp"

#include <algorithm>
#include <new>

namespace lockstep::internal {

void ProgressRoster::add(Progressor* progressor) {
  auto entry = std::make_shared<Entry>();
  entry->progressor = progressor;
  std::lock_guard lock(mutex_);
  entries_.push_back(std::move(entry));
  changed_ = true;
}

void ProgressRoster::remove(Progressor* progressor, const std::function<void()>& wake_owner) {
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& candidate) { return candidate->progressor == progressor; });
  if (found == entries_.end()) return;
  const std::shared_ptr<Entry> entry = *found;
  entries_.erase(found);
  changed_ = true;
  entry->removed = true;
  if (wake_owner) {
    lock.unlock();
    wake_owner();
    lock.lock();
    released_.wait(lock, [&] { return !entry->in_use; });
  } else if (entry->armed) {
    entry->armed = false;
    lock.unlock();
    progressor->disarm();
  }
}

// Calls `call` unless the entry was removed. While it runs, or while the entry stays armed, a remover waits.
template <typename Call>
void ProgressRoster::use(Entry& entry, Call call) {
  {
    std::lock_guard lock(mutex_);
    if (entry.removed) return;
    entry.in_use = true;
  }
  call(*entry.progressor);
  std::lock_guard lock(mutex_);
  entry.in_use = entry.armed;
  if (entry.removed) released_.notify_all();
}

void ProgressRoster::refresh() {
  const bool requested = requested_.exchange(false);
  try {
    std::lock_guard lock(mutex_);
    if (changed_) roster_ = entries_;
    changed_ = false;
  } catch (const std::bad_alloc&) {  // The next step tries again, and is not long in coming.
    return requested_.store(true);
  }
  if (requested) {
    for (auto& entry : roster_) entry->idle = false;
  }
}

Progressor::Outcome ProgressRoster::step() {
  refresh();
  auto outcome = Progressor::Outcome::idle;
  for (auto& entry : roster_) {
    if (entry->idle) continue;
    use(*entry, [&](Progressor& progressor) {
      const auto one = progressor.progress();
      entry->idle = one == Progressor::Outcome::idle;
      if (one == Progressor::Outcome::moved) outcome = one;
      if (one == Progressor::Outcome::stuck && outcome == Progressor::Outcome::idle) outcome = one;
    });
  }
  return outcome;
}

/// Whether there is memory for it.
bool ProgressRoster::list(int descriptor) try {
  armed_.descriptors.push_back(descriptor);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

const ProgressRoster::Armed& ProgressRoster::arm() {
  armed_.descriptors.clear();
  armed_.blind = false;
  for (auto& entry : roster_) {
    if (entry->idle) continue;
    use(*entry, [&](Progressor& progressor) {
      const int descriptor = progressor.arm();
      entry->armed = true;
      if (descriptor < 0 || !list(descriptor)) armed_.blind = true;
    });
  }
  return armed_;
}

bool ProgressRoster::step_armed() {
  bool moved = false;
  for (auto& entry : roster_) {
    if (!entry->armed) continue;
    use(*entry,
        [&](Progressor& progressor) { moved |= progressor.progress() == Progressor::Outcome::moved; });
  }
  return moved;
}

void ProgressRoster::disarm() {
  for (auto& entry : roster_) {
    if (!entry->armed) continue;
    entry->progressor->disarm();  // Alive even when removed meanwhile: the remover waits for in_use to fall.
    entry->armed = false;
    std::lock_guard lock(mutex_);
    entry->in_use = false;
    if (entry->removed) released_.notify_all();
  }
}

}  // namespace lockstep::internal
