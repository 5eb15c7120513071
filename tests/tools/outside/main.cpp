#include <cstdio>
#include <lockstep/lockstep.hpp>

int main() {
  const auto size = lockstep::size_of(lockstep::DataType::bf16);
  std::printf("a bf16 has %zu bytes\n", size);
  return size == 2 ? 0 : 1;
}
