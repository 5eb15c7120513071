// The losses of a training, for whoever compares two of them.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

/// One step a line: number, loss.
inline void write_losses(const std::string& path, const std::vector<double>& losses) {
  std::ofstream file(path);
  file.precision(9);
  for (std::size_t s = 0; s < losses.size(); ++s) file << s << ' ' << losses[s] << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}
