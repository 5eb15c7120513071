#include "examples/gpt/device/device_layer.hpp"

#include <cmath>

#include "lockstep/device_runtime.hpp"

namespace gpt {

using examples::row_major;
using examples::transposed;

namespace {

class Linear final : public DeviceLayer {
 public:
  Linear(const Bench& bench, DeviceTensor& weight, DeviceTensor& bias)
      : DeviceLayer(bench),
        weight_(weight),
        bias_(bias),
        inputs_(weight.shape[0]),
        outputs_(weight.shape[1]),
        output_(device_floats(bench.rows * outputs_)),
        by_input_(device_floats(bench.rows * inputs_)) {}

  const float* forward(const float* input) override {
    input_ = input;
    bench_.compute.run(SetRows{output_.get(), bias_.value.get(), outputs_}, bench_.rows * outputs_);
    bench_.compute.multiply_add(row_major(input, bench_.rows, inputs_), weight(), output_.get());
    return output_.get();
  }
  const float* backward(const float* delta, const Ready& ready) override {
    const auto by_output = row_major(delta, bench_.rows, outputs_);
    bench_.compute.run(SumRows{delta, bias_.gradient, bench_.rows, outputs_}, outputs_);
    ready(bias_);
    lockstep::device::fill(weight_.gradient, 0, weight_.count * sizeof(float), bench_.stream);
    bench_.compute.multiply_add(transposed(row_major(input_, bench_.rows, inputs_)), by_output,
                                weight_.gradient);
    ready(weight_);
    lockstep::device::fill(by_input_.get(), 0, bench_.rows * inputs_ * sizeof(float), bench_.stream);
    bench_.compute.multiply_add(by_output, transposed(weight()), by_input_.get());
    return by_input_.get();
  }

 private:
  examples::MatrixView weight() const { return row_major(weight_.value.get(), inputs_, outputs_); }

  DeviceTensor &weight_, &bias_;
  const std::size_t inputs_, outputs_;
  const DeviceFloats output_, by_input_;
  const float* input_ = nullptr;
};

class Norm final : public DeviceLayer {
 public:
  Norm(const Bench& bench, DeviceTensor& scale, DeviceTensor& shift)
      : DeviceLayer(bench),
        scale_(scale),
        shift_(shift),
        normal_(device_floats(bench.rows * scale.count)),
        inverse_deviation_(device_floats(bench.rows)),
        output_(device_floats(bench.rows * scale.count)),
        by_input_(device_floats(bench.rows * scale.count)) {}

  const float* forward(const float* input) override {
    bench_.compute.run(NormForward{input, scale_.value.get(), shift_.value.get(), normal_.get(),
                                   inverse_deviation_.get(), output_.get(), scale_.count},
                       bench_.rows);
    return output_.get();
  }
  const float* backward(const float* delta, const Ready& ready) override {
    bench_.compute.run(
        NormGradients{delta, normal_.get(), scale_.gradient, shift_.gradient, bench_.rows, scale_.count},
        scale_.count);
    ready(shift_);
    ready(scale_);
    bench_.compute.run(NormBackward{delta, scale_.value.get(), normal_.get(), inverse_deviation_.get(),
                                    by_input_.get(), scale_.count},
                       bench_.rows);
    return by_input_.get();
  }

 private:
  DeviceTensor &scale_, &shift_;
  const DeviceFloats normal_, inverse_deviation_, output_, by_input_;
};

class Gelu final : public DeviceLayer {
 public:
  Gelu(const Bench& bench, std::size_t width)
      : DeviceLayer(bench),
        count_(bench.rows * width),
        output_(device_floats(count_)),
        by_input_(device_floats(count_)) {}

  const float* forward(const float* input) override {
    input_ = input;
    bench_.compute.run(GeluForward{input, output_.get()}, count_);
    return output_.get();
  }
  const float* backward(const float* delta, const Ready&) override {
    bench_.compute.run(GeluBackward{input_, delta, by_input_.get()}, count_);
    return by_input_.get();
  }

 private:
  const std::size_t count_;
  const DeviceFloats output_, by_input_;
  const float* input_ = nullptr;
};

class Attention final : public DeviceLayer {
 public:
  Attention(const Bench& bench, const Heads& heads)
      : DeviceLayer(bench),
        heads_(heads),
        scale_(1.0f / std::sqrt(static_cast<float>(heads.depth()))),
        weights_(device_floats(threads() * heads.length)),
        by_scores_(device_floats(threads() * heads.length)),
        output_(device_floats(bench.rows * heads.width)),
        by_input_(device_floats(3 * bench.rows * heads.width)) {}

  const float* forward(const float* input) override {
    input_ = input;
    bench_.compute.run(Attend{heads_, input, weights_.get(), output_.get(), scale_}, threads());
    return output_.get();
  }
  const float* backward(const float* delta, const Ready&) override {
    bench_.compute.run(AttendBackwardQueries{heads_, input_, weights_.get(), delta, by_scores_.get(),
                                             by_input_.get(), scale_},
                       threads());
    bench_.compute.run(
        AttendBackwardKeys{heads_, input_, weights_.get(), by_scores_.get(), delta, by_input_.get()},
        threads());
    return by_input_.get();
  }

 private:
  std::size_t threads() const { return bench_.rows * heads_.heads; }

  const Heads heads_;
  const float scale_;
  const DeviceFloats weights_, by_scores_, output_, by_input_;
  const float* input_ = nullptr;
};

class Residual final : public DeviceLayer {
 public:
  Residual(const Bench& bench, std::size_t width, Layers layers)
      : DeviceLayer(bench),
        count_(bench.rows * width),
        layers_(std::move(layers)),
        output_(device_floats(count_)),
        by_input_(device_floats(count_)) {}

  const float* forward(const float* input) override {
    const float* rows = input;
    for (const auto& layer : layers_) rows = layer->forward(rows);
    bench_.compute.run(Add{input, rows, output_.get()}, count_);
    return output_.get();
  }
  const float* backward(const float* delta, const Ready& ready) override {
    const float* rows = delta;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
      rows = (*layer)->backward(rows, ready);
    bench_.compute.run(Add{delta, rows, by_input_.get()}, count_);
    return by_input_.get();
  }

 private:
  const std::size_t count_;
  const Layers layers_;
  const DeviceFloats output_, by_input_;
};

}  // namespace

std::unique_ptr<DeviceLayer> make_linear(const Bench& bench, DeviceTensor& weight, DeviceTensor& bias) {
  return std::make_unique<Linear>(bench, weight, bias);
}
std::unique_ptr<DeviceLayer> make_norm(const Bench& bench, DeviceTensor& scale, DeviceTensor& shift) {
  return std::make_unique<Norm>(bench, scale, shift);
}
std::unique_ptr<DeviceLayer> make_gelu(const Bench& bench, std::size_t width) {
  return std::make_unique<Gelu>(bench, width);
}
std::unique_ptr<DeviceLayer> make_attention(const Bench& bench, const Heads& heads) {
  return std::make_unique<Attention>(bench, heads);
}
std::unique_ptr<DeviceLayer> make_residual(const Bench& bench, std::size_t width, Layers layers) {
  return std::make_unique<Residual>(bench, width, std::move(layers));
}

}  // namespace gpt
