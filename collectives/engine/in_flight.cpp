#include "collectives/engine/in_flight.hpp"

#include <algorithm>

namespace lockstep::internal {

InFlight::InFlight() {
  for (List* list : {&active_, &in_domain_}) list->reserve(2 * kMaxInFlight);
}

/// Active ones are limited, and have room for all from the beginning.
void InFlight::reserve(std::size_t operations) {
  for (List* list : {&pending_, &messages_}) {
    if (list->capacity() < operations) list->reserve(2 * operations);
  }
}

bool InFlight::has_pending(bool urgent) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [urgent](const Operation* operation) { return operation->urgent == urgent; });
}

void InFlight::start(Operation& operation) {
  const auto place = std::find_if(active_.begin(), active_.end(), [&](const Operation* other) {
    return other->call.priority < operation.call.priority;
  });
  active_.insert(place, &operation);
  ++running_[operation.urgent];
}

Operation* InFlight::take_pending() {
  const auto next = std::find_if(pending_.begin(), pending_.end(),
                                 [this](const Operation* operation) { return has_room(operation->urgent); });
  if (next == pending_.end()) return nullptr;
  Operation* operation = *next;
  pending_.erase(next);
  return operation;
}

bool InFlight::retire(Operation& operation) {
  if (std::erase(active_, &operation) > 0) --running_[operation.urgent];
  if (!is_front_of_domain(operation)) return false;
  in_domain_.erase(in_domain_.begin());
  return true;
}

Operation* InFlight::oldest(bool urgent) const {
  Operation* oldest = nullptr;
  for (Operation* operation : active_) {
    if (operation->urgent == urgent && (oldest == nullptr || operation->sequence < oldest->sequence))
      oldest = operation;
  }
  return oldest;
}

const Operation* InFlight::find(std::uint64_t sequence) const {
  for (const List* list : {&active_, &pending_}) {
    const auto it = std::find_if(list->begin(), list->end(), [sequence](const Operation* operation) {
      return operation->sequence == sequence;
    });
    if (it != list->end()) return *it;
  }
  return nullptr;
}

}  // namespace lockstep::internal
