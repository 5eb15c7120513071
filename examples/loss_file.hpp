// The losses of a training, for whoever compares two of them.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace examples {

/// What --loss-file names: one step a line, number and loss. Opened before the training, not after it: a path
/// that cannot be written is found then. An empty path is no file.
class LossFile {
 public:
  /// Throws std::runtime_error, as do the others.
  explicit LossFile(const std::string& path) : path_(path) {
    if (path_.empty()) return;
    file_.open(path_);
    check();
    file_.precision(9);
  }

  void add(std::size_t step, double loss) {
    if (path_.empty()) return;
    file_ << step << ' ' << loss << '\n';
    check();
  }

  /// Nothing of it is lost.
  void finish() {
    if (path_.empty()) return;
    file_.flush();
    check();
  }

  void add_all(const std::vector<double>& losses) {
    for (std::size_t step = 0; step < losses.size(); ++step) add(step, losses[step]);
    finish();
  }

 private:
  void check() const {
    if (!file_) throw std::runtime_error("--loss-file: cannot write " + path_ + ": " + std::strerror(errno));
  }

  const std::string path_;
  std::ofstream file_;
};

}  // namespace examples
