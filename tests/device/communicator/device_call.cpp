#include "tests/device/communicator/device_call.hpp"

#include "lib/device/backend.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {

using testing::must;

static Backend& backend() { return *must(device_backend()); }

DeviceArena::DeviceArena(std::size_t bytes, int device)
    : bytes_(bytes),
      host_(static_cast<std::byte*>(must(backend().allocate_pinned(bytes)))),
      device_(static_cast<std::byte*>(allocate_device(bytes, device))) {}
DeviceArena::~DeviceArena() {
  free_device(device_);
  static_cast<void>(backend().free_pinned(host_));
}

void* DeviceArena::on_device(const void* host) const {
  return host == nullptr ? nullptr : device_ + (static_cast<const std::byte*>(host) - host_);
}
void DeviceArena::upload(std::size_t bytes, Stream stream) {
  must(backend().copy(device_, host_, bytes, stream));
}
void DeviceArena::download(std::size_t bytes, Stream stream) {
  must(backend().copy(host_, device_, bytes, stream));
}

TestStream::TestStream(int device) {
  must(backend().select(device));
  stream_ = must(backend().create_stream());
}
TestStream::~TestStream() { static_cast<void>(backend().destroy_stream(stream_)); }
void TestStream::synchronize() const { must(backend().synchronize(stream_)); }

void start_on_device(DeviceCommunicator& comm, const CollectiveCase& c, const CallBuffers& buffers,
                     const DeviceArena& arena, Stream stream, DeviceCallOptions options) {
  const int rank = comm.rank();
  options.scale = c.scale(rank);
  const void* const in = arena.on_device(buffers.input());
  void* const out = arena.on_device(buffers.output());
  const auto counts = c.irregular() ? c.counts(rank) : std::vector<std::size_t>();
  switch (c.collective) {
    case Collective::all_reduce:
      return comm.all_reduce(in, out, c.count, c.type, c.op, stream, options);
    case Collective::reduce:
      return comm.reduce(in, out, c.count, c.type, c.op, c.root, stream, options);
    case Collective::broadcast:
      return comm.broadcast(out, out, c.count, c.type, c.root, stream, options);
    case Collective::scatter:
      return comm.scatter(in, out, c.count, c.type, c.root, stream, options);
    case Collective::gather:
      return comm.gather(in, out, c.count, c.type, c.root, stream, options);
    case Collective::all_gather:
      return comm.all_gather(in, out, c.count, c.type, stream, options);
    case Collective::reduce_scatter:
      return comm.reduce_scatter(in, out, c.count, c.type, c.op, stream, options);
    case Collective::all_to_all:
      return comm.all_to_all(in, out, c.count, c.type, stream, options);
    case Collective::barrier:
      return comm.barrier(stream, options);
    case Collective::scatter_v:
      return comm.scatter_v(in, counts, out, c.output_elements(rank), c.type, c.root, stream, options);
    case Collective::gather_v:
      return comm.gather_v(in, c.input_elements(rank), out, counts, c.type, c.root, stream, options);
    case Collective::all_gather_v:
      return comm.all_gather_v(in, out, counts, c.type, stream, options);
    case Collective::reduce_scatter_v:
      return comm.reduce_scatter_v(in, out, counts, c.type, c.op, stream, options);
    case Collective::all_to_all_v:
      return comm.all_to_all_v(in, counts, out, c.receive_counts(rank), c.type, stream, options);
  }
}

}  // namespace lockstep::internal
