// The public face of the backend: errors become exceptions.
#include "lib/device/backend.hpp"
#include "lib/device/driver_variables.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::device {
namespace {

using internal::Result;

template <typename T>
T value_of(Result<T> result) {
  result.status().throw_if_error();
  return std::move(result.value());
}

internal::Backend& backend() { return internal::device_backend_or_throw(); }

}  // namespace

void set_driver_variables() noexcept { internal::set_driver_variables(); }

int count() { return value_of(backend().device_count()); }

Properties properties(int device) {
  const internal::DeviceIdentity identity = value_of(backend().identify(device));
  return {backend().name(), identity.name, identity.memory, identity.sm,
          identity.kernels_of_processes_overlap};
}

int selected() { return value_of(backend().selected()); }
void select(int device) { backend().select(device).throw_if_error(); }

Stream create_stream() { return value_of(backend().create_stream()); }
void destroy_stream(Stream stream) { backend().destroy_stream(stream).throw_if_error(); }
void synchronize(Stream stream) { backend().synchronize(stream).throw_if_error(); }
bool is_idle(Stream stream) { return value_of(backend().idle(stream)); }

Event create_event() { return value_of(backend().create_event()); }
Event create_timed_event() { return value_of(backend().create_timed_event()); }
void destroy_event(Event event) { backend().destroy_event(event).throw_if_error(); }
void record(Event event, Stream stream) { backend().record(event, stream).throw_if_error(); }
void wait(Stream stream, Event event) { backend().wait_event(stream, event).throw_if_error(); }
double elapsed_us(Event start, Event end) { return value_of(backend().elapsed_us(start, end)); }

void begin_capture(Stream stream) { backend().begin_capture(stream).throw_if_error(); }
Graph end_capture(Stream stream) { return value_of(backend().end_capture(stream)); }
bool is_capturing(Stream stream) { return value_of(backend().capturing(stream)); }
void replay(Graph graph, Stream stream) { backend().replay(graph, stream).throw_if_error(); }
void destroy_graph(Graph graph) { backend().destroy_graph(graph).throw_if_error(); }

void copy(void* destination, const void* source, std::size_t bytes, Stream stream) {
  backend().copy(destination, source, bytes, stream).throw_if_error();
}
void fill(void* destination, std::uint8_t value, std::size_t bytes, Stream stream) {
  backend().fill(destination, value, bytes, stream).throw_if_error();
}

void* allocate_pinned(std::size_t bytes) { return value_of(backend().allocate_pinned(bytes)); }
void free_pinned(void* memory) { backend().free_pinned(memory).throw_if_error(); }

}  // namespace lockstep::device
