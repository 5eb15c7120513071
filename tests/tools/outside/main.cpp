#include <cstdio>
#include <lockstep/lockstep.hpp>

int main() {
  auto ranks = lockstep::Communicator::create();
  float sum = 42;
  ranks.all_reduce(&sum, &sum, 1, lockstep::DataType::f32, lockstep::ReduceOp::sum);
  std::printf("rank %d of %d: the ranks add up to %g\n", ranks.rank(), ranks.size(), sum);
  return sum == 42 ? 0 : 1;
}
