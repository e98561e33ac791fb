// Tests fused_pointwise on random programs, dtypes, layouts and values, on each op, and on chosen
// programs.
#include <cstdlib>

#include "../fused/code_files.h"
#include "kernel_selftest_fused.h"

namespace selftest::bytes {
namespace {

// ---- random operands ----------------------------------------------------------------------------

enum class Kind { Dense, Row, Column, Scalar, Transposed, Sliced, Shifted };
constexpr Kind kInputKinds[] = {Kind::Dense,  Kind::Dense,      Kind::Row,    Kind::Column,
                                Kind::Scalar, Kind::Transposed, Kind::Sliced, Kind::Shifted};

double draw_value(Random& random, DType dtype) {
  if (dtype == DType::Bool) return random.uniform() < 0.5;
  if (!is_floating(dtype)) return std::floor(random.uniform(-9, 10));
  constexpr double special[] = {INFINITY, -INFINITY, NAN,  0.0,   -0.0,
                                1e-40,    -3e-45,    1e30, 65504, 0.5};
  if (random.uniform() < 0.05) return special[random.integer(0, 10)];
  return random.normal() * (random.uniform() < 0.2 ? 20 : 1);
}

// A view of these sizes; values where its storage has them.
Tensor operand(Random& random, Kind kind, DType dtype, const Sizes& sizes) {
  const int dims = static_cast<int>(sizes.size()), last = dims - 1;
  Sizes own = sizes;
  if (kind == Kind::Row)
    for (int d = 0; d < last; d++) own[d] = 1;
  if (kind == Kind::Column) own[last] = 1;
  if (kind == Kind::Scalar) own.assign(sizes.size(), 1);
  if (kind == Kind::Transposed) std::swap(own[0], own[last]);
  const int64_t step = random.integer(1, 3), before = random.integer(0, 3);
  if (kind == Kind::Sliced) own[last] = before + sizes[last] * step + 1;
  Tensor t = shifted(dtype, own, kind == Kind::Shifted ? random.integer(1, 8) : 0);
  if (kind == Kind::Transposed) t = t.transpose(0, last);
  if (kind == Kind::Sliced) t = t.slice(last, before, step, sizes[last]);
  for (int d = 0; d < dims; d++)
    if (t.sizes[d] != sizes[d]) t = t.expand(d, sizes[d]);
  return t;
}

Tensor input(Random& random, Kind kind, DType dtype, const Sizes& sizes) {
  Tensor t = operand(random, kind, dtype, sizes);
  return fill_with(t, [&](int64_t) { return draw_value(random, dtype); });
}

Sizes draw_sizes(Random& random) {
  constexpr int64_t flat[] = {1, 2, 7, 8, 64, 1000, 1003, 4096, 5003};
  constexpr int64_t rows[] = {1, 2, 3, 16, 33}, inner[] = {1, 4, 5, 8, 24, 40, 63, 128};
  switch (random.integer(0, 4)) {
    case 0:
      return {flat[random.integer(0, 9)]};
    case 1:
      return {rows[random.integer(0, 5)], inner[random.integer(0, 8)]};
    case 2:
      return {rows[random.integer(0, 4)], rows[random.integer(0, 5)], inner[random.integer(0, 8)]};
    default:
      return {3, rows[random.integer(0, 3)], 2, inner[random.integer(0, 8)]};
  }
}

// ---- random programs ----------------------------------------------------------------------------

ComputeType class_of(DType dtype) {
  if (!is_floating(dtype)) return ComputeType::Int64;
  return dtype == DType::Float64 ? ComputeType::Double : ComputeType::Float;
}

DType draw_result(Random& random, ComputeType compute) {
  constexpr DType floats[] = {DType::Float32, DType::BFloat16, DType::BFloat16, DType::Float16};
  constexpr DType integers[] = {DType::Int64, DType::Int32, DType::Int16,
                                DType::Int8,  DType::UInt8, DType::Bool};
  if (compute == ComputeType::Double) return DType::Float64;
  return compute == ComputeType::Float ? floats[random.integer(0, 4)]
                                       : integers[random.integer(0, 6)];
}

bool computes(const FusedOp& op, ComputeType compute) {
  return op.classes == FusedClass::A ||
         (op.classes == FusedClass::I) == (compute == ComputeType::Int64);
}

// A step of this op: integers only from integers, as the kernels have it.
Step draw_step(Random& random, const FusedOp& op, ComputeType compute,
               const std::vector<DType>& dtypes) {
  Step step = {op.name, compute, op.boolean ? DType::Bool : draw_result(random, compute), {}, {}};
  std::vector<int> usable;
  for (size_t v = 0; v < dtypes.size(); v++)
    if (compute != ComputeType::Int64 || !is_floating(dtypes[v]))
      usable.push_back(static_cast<int>(v));
  constexpr double numbers[] = {0.5, -1, 2, 3, 1e-3, 7};
  bool has_tensor = false;
  for (int32_t k = 0; k < op.arity; k++) {
    const bool is_number =
        usable.empty() || (random.uniform() < 0.15 && (has_tensor || k + 1 < op.arity));
    // results rather than inputs, so that programs are deep
    const auto from =
        static_cast<int64_t>(usable.size() > 3 && random.uniform() < 0.6 ? usable.size() - 3 : 0);
    if (is_number)
      step.operands.push_back(constant(numbers[random.integer(0, 6)]));
    else
      step.operands.push_back(value(
          usable[static_cast<size_t>(random.integer(from, static_cast<int64_t>(usable.size())))]));
    has_tensor = has_tensor || !is_number;
  }
  constexpr double params[] = {1, 1, -1, 0.5, 1.25, 0.044, 2};
  for (int p = 0; p < 4; p++) step.params.push_back(params[random.integer(0, 7)]);
  return step;
}

Step draw_conversion(Random& random, const std::vector<DType>& dtypes) {
  const auto from = static_cast<int>(random.integer(0, static_cast<int64_t>(dtypes.size())));
  const DType source = dtypes[static_cast<size_t>(from)];
  return {
      "", class_of(source), static_cast<DType>(random.integer(0, kNumDTypes)), {value(from)}, {}};
}

Program draw_program(Random& random, std::vector<DType> dtypes, int num_steps) {
  Program program;
  const auto num_inputs = static_cast<int64_t>(dtypes.size());
  while (static_cast<int>(program.steps.size()) < num_steps) {
    Step step = draw_conversion(random, dtypes);
    if (random.uniform() < 0.85) {
      const FusedOp& op = kFusedOps[random.integer(0, kNumFusedOps)];
      const double drawn = random.uniform();
      const ComputeType compute = drawn < 0.65  ? ComputeType::Float
                                  : drawn < 0.8 ? ComputeType::Double
                                                : ComputeType::Int64;
      if (!computes(op, compute)) continue;
      step = draw_step(random, op, compute, dtypes);
      const auto is_value = [](const Operand& o) { return o.value >= 0; };
      if (std::none_of(step.operands.begin(), step.operands.end(), is_value)) continue;
    }
    dtypes.push_back(step.dtype);
    program.steps.push_back(step);
  }
  const auto count = static_cast<int64_t>(dtypes.size());
  program.outputs.push_back(static_cast<int>(count - 1));
  for (int64_t more = random.integer(0, 3); more > 0; more--)
    program.outputs.push_back(static_cast<int>(random.integer(num_inputs, count)));
  return program;
}

void test_random_program(uint64_t seed) {
  Random random(seed);
  const Sizes sizes = draw_sizes(random);
  std::vector<Tensor> inputs, outputs;
  std::vector<DType> dtypes;
  const int64_t num_inputs = random.integer(1, 5);
  for (int64_t i = 0; i < num_inputs; i++) {
    const DType dtype = random.uniform() < 0.5 ? draw_result(random, ComputeType::Float)
                                               : static_cast<DType>(random.integer(0, kNumDTypes));
    const Kind kind = random.uniform() < 0.4 ? Kind::Dense : kInputKinds[random.integer(0, 8)];
    inputs.push_back(input(random, kind, dtype, sizes));
    dtypes.push_back(dtype);
  }
  const Program program = draw_program(random, dtypes, static_cast<int>(random.integer(1, 9)));
  for (int o : program.outputs) {
    const auto v = static_cast<size_t>(o);
    const DType dtype =
        v < inputs.size() ? inputs[v].dtype : program.steps[v - inputs.size()].dtype;
    constexpr Kind kinds[] = {Kind::Dense,      Kind::Dense,  Kind::Dense,
                              Kind::Transposed, Kind::Sliced, Kind::Shifted};
    outputs.push_back(operand(random, kinds[random.integer(0, 6)], dtype, sizes));
  }
  check("random program " + std::to_string(seed), program, inputs, outputs);
}

// ---- each op ------------------------------------------------------------------------------------

// Between a product and a sum, which must not become one operation with it.
void test_op(const FusedOp& op, ComputeType compute, DType dtype, uint64_t seed) {
  Random random(seed);
  const Sizes sizes = {1003};
  std::vector<Tensor> inputs;
  for (int i = 0; i < 4; i++) inputs.push_back(input(random, Kind::Dense, dtype, sizes));
  Program program;
  program.steps.push_back({"mul", compute, dtype, {value(0), value(1)}, {}});
  Step step = {op.name, compute, op.boolean ? DType::Bool : dtype, {value(4)}, {0.5, 1.25, 0, 0}};
  if (op.arity > 1) step.operands.push_back(value(2));
  if (op.arity > 2) step.operands.push_back(value(3));
  program.steps.push_back(step);
  program.steps.push_back({"add", compute, dtype, {value(5), value(3)}, {1}});
  program.steps.push_back({"sub", compute, dtype, {value(2), value(5)}, {-0.75}});
  program.outputs = {6, 7, 5};
  std::vector<Tensor> outputs = {make(dtype, sizes), make(dtype, sizes), make(step.dtype, sizes)};
  check(std::string(op.name) + " between mul and add, " + dtype_name(dtype), program, inputs,
        outputs);
}

void test_ops() {
  uint64_t seed = 1000;
  for (const FusedOp& op : kFusedOps) {
    if (computes(op, ComputeType::Float)) {
      test_op(op, ComputeType::Float, DType::Float32, seed++);
      test_op(op, ComputeType::Float, seed % 2 ? DType::BFloat16 : DType::Float16, seed++);
      test_op(op, ComputeType::Double, DType::Float64, seed++);
    }
    if (computes(op, ComputeType::Int64))
      test_op(op, ComputeType::Int64, seed % 2 ? DType::Int64 : DType::Int32, seed++);
  }
}

// ---- chosen programs ----------------------------------------------------------------------------

// Steps that would share a product if the compiler saw it in both.
void test_shared_products() {
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    const ComputeType compute = class_of(dtype);
    Random random(77);
    std::vector<Tensor> inputs;
    for (int i = 0; i < 3; i++) inputs.push_back(input(random, Kind::Dense, dtype, {4099}));
    Program program;
    program.steps = {{"mul", compute, dtype, {value(1), value(2)}, {}},
                     {"addcmul", compute, dtype, {value(0), value(1), value(2)}, {1}},
                     {"add", compute, dtype, {value(3), value(0)}, {1}},
                     {"sub", compute, dtype, {value(0), value(3)}, {0.3}},
                     {"sigmoid", compute, dtype, {value(0)}, {}},
                     {"silu_backward", compute, dtype, {value(1), value(0)}, {}},
                     {"sigmoid_backward", compute, dtype, {value(1), value(7)}, {}},
                     {"square", compute, dtype, {value(0)}, {}},
                     {"add", compute, dtype, {value(10), value(9)}, {1}},
                     {"gelu_tanh_backward", compute, dtype, {value(1), value(0)}, {}}};
    program.outputs = {3, 4, 5, 6, 8, 9, 11, 12};
    std::vector<Tensor> outputs;
    for (size_t o = 0; o < program.outputs.size(); o++) outputs.push_back(make(dtype, {4099}));
    check("products in several steps", program, inputs, outputs);
  }
}

void test_layouts() {
  const Program program = swiglu(DType::BFloat16);
  for (const int64_t n : {0, 1, 7, 8, 9, 2048, 2049, 16391}) {
    Random random(static_cast<uint64_t>(n));
    check("dense", program,
          {input(random, Kind::Dense, DType::BFloat16, {n}),
           input(random, Kind::Dense, DType::BFloat16, {n})},
          {make(DType::BFloat16, {n})});
  }
  uint64_t seed = 50;
  for (const Kind a : kInputKinds)
    for (const Kind b : kInputKinds) {
      Random random(seed++);
      const Sizes sizes = {12, 40};
      check("layouts " + std::to_string(static_cast<int>(a)) + " and " +
                std::to_string(static_cast<int>(b)),
            program,
            {input(random, a, DType::BFloat16, sizes), input(random, b, DType::Float32, sizes)},
            {make(DType::BFloat16, sizes)});
    }
  // 13 dims that do not merge
  Random random(99);
  Sizes sizes(13, 2);
  Tensor x = input(random, Kind::Dense, DType::Float32, sizes);
  Tensor y = input(random, Kind::Dense, DType::Float32, sizes);
  for (int d = 0; d < 6; d++) y = y.transpose(d, 12 - d);
  Program add = {{{"add", kFloat, DType::Float32, {value(0), value(1)}, {1}}}, {2}};
  check("13 dims", add, {x, y}, {make(DType::Float32, sizes)});
}

// As many operands, and as many steps, as a program may have.
void test_limits() {
  Random random(5);
  Program wide, deep;
  std::vector<Tensor> inputs, outputs;
  for (int i = 0; i < 20; i++)
    inputs.push_back(input(random, i % 3 ? Kind::Dense : Kind::Row, DType::BFloat16, {16, 72}));
  for (int i = 0; i < 19; i++)
    wide.steps.push_back(
        {"add", kFloat, DType::BFloat16, {value(i == 0 ? 0 : 19 + i), value(i + 1)}, {1}});
  wide.outputs = {38, 30, 25, 20};
  for (int i = 0; i < 4; i++) outputs.push_back(make(DType::BFloat16, {16, 72}));
  check("24 operands", wide, inputs, outputs);
  const char* ops[] = {"add", "sigmoid", "mul", "tanh"};
  for (int i = 0; i < 64; i++) {
    Step step = {ops[i % 4], kFloat, i % 5 ? DType::BFloat16 : DType::Float32, {value(i + 1)}, {1}};
    if (i % 2 == 0) step.operands.push_back(value(0));
    deep.steps.push_back(step);
  }
  deep.outputs = {65};
  check("64 steps", deep,
        {input(random, Kind::Dense, DType::Float32, {999}),
         input(random, Kind::Dense, DType::BFloat16, {999})},
        {make(deep.steps.back().dtype, {999})});
}

// Launches without waiting in between: each reads what the one before writes.
void test_sequence() {
  Random random(6);
  const Sizes sizes = {300000};
  std::vector<Tensor> chain = {input(random, Kind::Dense, DType::Float32, sizes)};
  const Program program = {{{"sin", kFloat, DType::Float32, {value(0)}, {}},
                            {"add", kFloat, DType::Float32, {value(1), value(0)}, {0.5}}},
                           {2}};
  constexpr int kLength = 12;
  for (int i = 0; i < kLength; i++) chain.push_back(make(DType::Float32, sizes));
  for (const Tensor& each : chain) each.storage->transfer(true);  // with their guards
  const std::vector<double> words = program.words();
  ErrorText error;
  for (int i = 0; i < kLength; i++) {
    TensorView views[2] = {view_of(chain[i]), view_of(chain[i + 1])};
    KernelCall call = {};
    call.kernel = kernel_id(kName);
    call.num_inputs = call.num_outputs = 1;
    call.num_params = static_cast<int32_t>(words.size());
    call.tensors = views;
    call.params = words.data();
    call.stream = stream;
    call.error = &error;
    if (!backend->launch(call).ok()) return report(kName, false, error.text);
  }
  backend->stream_synchronize(stream, &error);
  for (int i = 0; i < kLength; i++) {
    chain[i + 1].storage->transfer(false);
    const std::vector<Tensor> values = run_steps(program, {chain[i]}, sizes);
    const std::string fault = difference(program, values, {chain[i + 1]});
    report(kName, fault.empty(), "a sequence of launches: " + fault);
  }
}

void test_malformed() {
  const Tensor x = make(DType::Float32, {8}), y = make(DType::Float32, {8}),
               z = make(DType::Float32, {9});
  const std::vector<double> good = swiglu(DType::Float32).words();
  for (size_t i = 0; i < good.size(); i++) {
    std::vector<double> bad = good;
    bad[i] = NAN;
    ErrorText error;
    const Status status = run(kName, {x, x}, {y}, bad, &error);
    report(kName, status.code == Code::Invalid, "word " + std::to_string(i) + " that is NaN");
  }
  ErrorText error;
  report(kName, run(kName, {x, z}, {y}, good, &error).code == Code::Invalid, "sizes that differ");
}

void test_code_files() {
  char folder[] = "/tmp/shardwise-selftest-XXXXXX";
  if (!mkdtemp(folder)) return;
  setenv("SHARDWISE_TUNE_CACHE", folder, 1);
  const std::string name = fused::code_name("source", 90, 13000), code(5003, 'x');
  std::string read;
  report(kName, !fused::read_code(name, &read), "code that was not written");
  fused::write_code(name, code);
  report(kName, fused::read_code(name, &read) && read == code, "code from a file");
  FILE* file = fopen((std::string(folder) + "/kernels/" + name).c_str(), "r+b");
  if (file) {
    fseek(file, 1000, SEEK_SET);
    fputc('y', file);
    fclose(file);
  }
  report(kName, file && !fused::read_code(name, &read), "a damaged file");
  setenv("SHARDWISE_TUNE_CACHE", "off", 1);
  fused::write_code(name, code);
  report(kName, !fused::read_code(name, &read), "without a folder");
}

}  // namespace

void test_fused() {
  setenv("SHARDWISE_TUNE_CACHE", "off", 1);
  if (!find_nvrtc()) return;
  const double start = wall_seconds();
  test_layouts();
  test_limits();
  test_shared_products();
  test_sequence();
  test_malformed();
  test_code_files();
  if (!options.sparse) test_ops();
  const uint64_t programs = options.sparse ? 10 : options.quick ? 60 : 300;
  for (uint64_t seed = 0; seed < programs; seed++) test_random_program(20000 + seed);
  printf("fused_pointwise: %d cases in %.0f s\n", tallies[kName].cases, wall_seconds() - start);
}

}  // namespace selftest::bytes
