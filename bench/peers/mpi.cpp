// The MPI contender; compiled once by each MPI's own compiler.
#include <mpi.h>

#include "bench/peers/harness.hpp"

namespace {

using peers::Call;
using peers::Op;

void run(const Call& call, void* in, void* out) {
  const int count = static_cast<int>(call.count());
  const MPI_Comm world = MPI_COMM_WORLD;
  switch (call.op) {
    case Op::all_reduce:
      MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, world);
      return;
    case Op::reduce:
      MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, peers::kRoot, world);
      return;
    case Op::broadcast:
      MPI_Bcast(out, count, MPI_FLOAT, peers::kRoot, world);
      return;
    case Op::all_gather:
      MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, world);
      return;
    case Op::reduce_scatter:
      MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, world);
      return;
    case Op::gather:
      MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, peers::kRoot, world);
      return;
    case Op::scatter:
      MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, peers::kRoot, world);
      return;
    case Op::all_to_all:
      MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, world);
      return;
    case Op::barrier:
      MPI_Barrier(world);
      return;
  }
}

class Mpi final : public peers::Contender {
 public:
  Mpi() { MPI_Init(nullptr, nullptr); }
  ~Mpi() override { MPI_Finalize(); }

  // The first line of what the library says: "Open MPI v4.1.4, package: ..." or "MPICH
  // Version:	4.0.2".
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<std::size_t>(length));
    std::string line = all.substr(0, all.find_first_of("\n,"));
    for (char& c : line) c = c == '\t' ? ' ' : c;
    return line;
  }
  bool supports(const Call& call) const override { return call.kind == peers::Kind{}; }
  std::function<void()> bind(const Call& call, void* in, void* out) override {
    return [call, in, out] { run(call, in, out); };
  }
};

}  // namespace

int main(int argc, char** argv) {
  return peers::run_harness(argc, argv, peers::Waiting::spin,
                            [](const peers::Place&, peers::Board&) { return std::make_unique<Mpi>(); });
}
