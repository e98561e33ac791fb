// fused_pointwise: runs a program of pointwise ops (include/fused_program.h) tile by tile, so that
// values between its ops stay in the first-level cache. The program becomes a list of instructions,
// each a call of a loop or a conversion of pointwise.cc on a tile; buffers are shared by values that
// do not live at once. Results are those of the ops one by one, bit for bit.
#include <atomic>
#include <new>

#include "../../include/fused_program.h"
#include "../convert.h"
#include "../parallel_for.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kBlock = 1024;  // threads share no cache line of an output
constexpr int64_t kGrain = 32768;
constexpr int64_t kTileBytes = 48 << 10;  // of all buffers of a tile
constexpr int64_t kMostElements = 1024, kFewestElements = 8;

constexpr int32_t kValues = kMaxFusedOperands + kMaxFusedSteps;
// A value in its dtype, in each compute type, and before it is rounded; a number of an operand.
constexpr int32_t kPlaces = kValues * 5 + kMaxFusedSteps * kMaxFusedArity;
constexpr int32_t kInstructions = kPlaces + kMaxFusedOperands;
constexpr DType kElements[3] = {DType::Float32, DType::Float64, DType::Int64};
constexpr int32_t kAlways = INT32_MAX;

int32_t type_of(ComputeType type) { return static_cast<int32_t>(type); }

// The compute type that holds every value of a dtype.
int32_t exact_type(DType dtype) {
  if (dtype == DType::Float64) return type_of(ComputeType::Double);
  return type_of(is_floating(dtype) ? ComputeType::Float : ComputeType::Int64);
}

// Where the elements of a tile are: in a buffer, or in an operand that a loop can use as it is.
struct Place {
  const TensorView* operand;
  int32_t buffer;
  int32_t last_use;  // the last instruction that reads it
};

enum class Kind : int32_t {
  Fill,   // a number, once for all tiles
  Load,   // elements of a view, to the compute type
  Widen,  // a tile of `dtype`, to the compute type
  Round,  // a tile of the compute type, to `dtype`
  Run,    // the loop of an op
  Store,  // a tile of the compute type, to a view
};

struct Instruction {
  Kind kind;
  int32_t compute;
  int32_t to, from[kMaxFusedArity];  // places
  DType dtype;
  bool boolean;   // of Store: the tile is of bool
  bool divides;   // of Run: by integers, which must not be 0
  double number;  // of Fill
  const TensorView* view;
  PointwiseLoop loop;
  const double* params;
};

struct Tape {
  int32_t num_places = 0, num_instructions = 0;
  int64_t elements = 0;      // of a tile
  int64_t buffer_bytes = 0;  // of one buffer
  int64_t grain = 0;
  Place places[kPlaces];
  Instruction instructions[kInstructions];
};

// Translates a program to instructions.
class Translator {
 public:
  Translator(const KernelCall& call, const FusedProgram& program, Tape& tape)
      : call_(call), program_(program), tape_(tape) {}

  void translate() {
    const int32_t values = program_.num_inputs + program_.num_steps;
    for (int32_t v = 0; v < values; v++) stored_[v] = as_[v][0] = as_[v][1] = as_[v][2] = -1;
    double work = 0;
    for (int32_t i = 0; i < program_.num_steps; i++) work += step(i);
    for (int32_t k = 0; k < program_.num_outputs; k++) store(k);
    assign_buffers();
    tape_.grain = work > 0 ? static_cast<int64_t>(static_cast<double>(kGrain) / work) : kGrain;
  }

 private:
  Instruction& append(Kind kind, int32_t compute, int32_t to) {
    Instruction& added = tape_.instructions[tape_.num_instructions++];
    added = {};
    added.kind = kind;
    added.compute = compute;
    added.to = to;
    return added;
  }

  int32_t buffer() {
    tape_.places[tape_.num_places] = {nullptr, -1, -1};
    return tape_.num_places++;
  }

  int32_t direct(const TensorView& operand) {
    const int32_t place = buffer();
    tape_.places[place].operand = &operand;
    return place;
  }

  // The place for a value in its dtype: that of an output which stores it, or a buffer.
  int32_t target(int32_t value) {
    for (int32_t k = 0; k < program_.num_outputs; k++)
      if (program_.outputs[k] == value && call_.output(k).is_contiguous())
        return direct(call_.output(k));
    return buffer();
  }

  int32_t read(int32_t place) {
    int32_t& last = tape_.places[place].last_use;
    if (last != kAlways) last = tape_.num_instructions;
    return place;
  }

  // A value in a compute type.
  int32_t in_type(int32_t value, int32_t compute) {
    int32_t& place = as_[value][compute];
    if (place >= 0) return place;
    const DType dtype = program_.dtypes[value];
    if (value >= program_.num_inputs) {
      const int32_t from = read(stored_[value]);
      place = buffer();
      Instruction& widen = append(Kind::Widen, compute, place);
      widen.from[0] = from;
      widen.dtype = dtype;
      return place;
    }
    const TensorView& view = call_.input(value);
    if (dtype == kElements[compute] && view.is_contiguous()) return place = direct(view);
    place = buffer();
    append(is_constant(view) ? Kind::Fill : Kind::Load, compute, place).view = &view;
    if (is_constant(view)) tape_.places[place].last_use = kAlways;
    return place;
  }

  int32_t operand(const FusedOperand& given, int32_t compute) {
    if (!given.is_number) return in_type(given.value, compute);
    const int32_t place = buffer();
    tape_.places[place].last_use = kAlways;
    append(Kind::Fill, compute, place).number = given.number;
    return place;
  }

  // Returns the work of an element, as a multiple of reading one.
  double step(int32_t index) {
    const FusedStep& step = program_.steps[index];
    const int32_t value = program_.num_inputs + index, compute = type_of(step.compute);
    int32_t from[kMaxFusedArity] = {};
    for (int32_t i = 0; i < step.num_operands; i++) from[i] = operand(step.operands[i], compute);
    if (step.op < 0) {
      result(value, from[0], compute);
      return 1;
    }
    const PointwiseEntry& entry = pointwise_table().entries[step.op];
    const bool exact = entry.boolean || step.dtype == kElements[compute];
    const int32_t place = exact ? target(value) : buffer();
    for (int32_t i = 0; i < step.num_operands; i++) read(from[i]);
    Instruction& run = append(Kind::Run, compute, place);
    for (int32_t i = 0; i < step.num_operands; i++) run.from[i] = from[i];
    run.loop = entry.loop[compute];
    run.params = step.params;
    run.divides = step.compute == ComputeType::Int64 && divides(static_cast<PointwiseOp>(step.op));
    if (entry.boolean) {
      stored_[value] = place;
    } else {
      result(value, place, compute);
    }
    return static_cast<double>(kGrain) / static_cast<double>(entry.grain[compute]);
  }

  // The value is what a place holds in a compute type, rounded to its dtype.
  void result(int32_t value, int32_t place, int32_t compute) {
    const DType dtype = program_.dtypes[value];
    if (dtype == kElements[compute]) {
      stored_[value] = as_[value][compute] = place;
      return;
    }
    stored_[value] = target(value);
    read(place);
    Instruction& round = append(Kind::Round, compute, stored_[value]);
    round.from[0] = place;
    round.dtype = dtype;
  }

  void store(int32_t k) {
    const int32_t value = program_.outputs[k];
    const TensorView& view = call_.output(k);
    const int32_t there = stored_[value];
    if (there >= 0 && tape_.places[there].operand == &view) return;
    const bool boolean = view.dtype == DType::Bool && there >= 0;
    const int32_t compute = exact_type(view.dtype);
    const int32_t from = read(boolean ? there : in_type(value, compute));
    Instruction& store = append(Kind::Store, compute, -1);
    store.from[0] = from;
    store.boolean = boolean;
    store.view = &view;
  }

  // Gives each place without an operand a buffer that no value uses which is read later.
  void assign_buffers() {
    int32_t free_after[kPlaces];  // by buffer: the last instruction that reads its value
    int32_t count = 0;
    for (int32_t i = 0; i < tape_.num_instructions; i++) {
      if (tape_.instructions[i].to < 0) continue;
      Place& place = tape_.places[tape_.instructions[i].to];
      if (place.operand || place.buffer >= 0) continue;
      int32_t b = 0;
      while (b < count && (place.last_use == kAlways || free_after[b] >= i)) b++;
      if (b == count) count++;
      place.buffer = b;
      free_after[b] = place.last_use > i ? place.last_use : i;
    }
    const int64_t fits = kTileBytes / 8 / (count > 0 ? count : 1) & ~(kFewestElements - 1);
    tape_.elements = fits < kMostElements ? fits : kMostElements;
    tape_.buffer_bytes = tape_.elements * 8;
  }

  const KernelCall& call_;
  const FusedProgram& program_;
  Tape& tape_;
  int32_t stored_[kValues];  // the place of a value in its dtype, or -1
  int32_t as_[kValues][3];   // by compute type
};
static_assert(kTileBytes / 8 / kPlaces >= kFewestElements);

// ---- running ----

// A tape on a range of elements. False where an integer is divided by 0.
class Runner {
 public:
  explicit Runner(const Tape& tape)
      : tape_(tape),
        table_(pointwise_table()),
        memory_(static_cast<char*>(scratch(1, kTileBytes))) {}

  bool run(int64_t begin, int64_t end) {
    for (int32_t p = 0; p < tape_.num_places; p++)
      at_[p] =
          tape_.places[p].operand ? nullptr : memory_ + tape_.places[p].buffer * tape_.buffer_bytes;
    for (int32_t i = 0; i < tape_.num_instructions; i++)
      if (tape_.instructions[i].kind == Kind::Fill) fill(tape_.instructions[i]);
    for (int64_t at = begin; at < end; at += tape_.elements) {
      begin_ = at;
      count_ = end - at < tape_.elements ? end - at : tape_.elements;
      for (int32_t p = 0; p < tape_.num_places; p++)
        if (const TensorView* view = tape_.places[p].operand)
          at_[p] = element_at(view->data, view->dtype, at);
      for (int32_t i = 0; i < tape_.num_instructions; i++)
        if (!step(tape_.instructions[i])) return false;
    }
    return true;
  }

 private:
  void fill(const Instruction& fill) {
    char* to = at_[fill.to];
    const double value = fill.number;
    const void* from = fill.view ? fill.view->data : &value;
    const DType dtype = fill.view ? fill.view->dtype : DType::Float64;
    int64_t whole;
    if (!fill.view && fill.compute == type_of(ComputeType::Int64)) {
      from_double(value, &whole);
      return table_.gather[fill.compute](DType::Int64, &whole, 0, to, tape_.elements);
    }
    table_.gather[fill.compute](dtype, from, 0, to, tape_.elements);
  }

  bool step(const Instruction& step) {
    switch (step.kind) {
      case Kind::Fill:
        break;
      case Kind::Load:
        table_.gather_view(*step.view, begin_, count_, step.compute, at_[step.to]);
        break;
      case Kind::Widen:
        table_.gather[step.compute](step.dtype, at_[step.from[0]], 1, at_[step.to], count_);
        break;
      case Kind::Round:
        table_.scatter[step.compute](step.dtype, at_[step.from[0]], at_[step.to], 1, count_);
        break;
      case Kind::Run: {
        if (step.divides && has_zero(at_[step.from[1]])) return false;
        const void* inputs[3] = {at_[step.from[0]], at_[step.from[1]], at_[step.from[2]]};
        step.loop(inputs, at_[step.to], count_, step.params);
        break;
      }
      case Kind::Store:
        table_.scatter_view(*step.view, begin_, count_, step.compute, step.boolean,
                            at_[step.from[0]]);
        break;
    }
    return true;
  }

  bool has_zero(const char* divisors) const {
    const auto* values = reinterpret_cast<const int64_t*>(divisors);
    int64_t zeros = 0;
    for (int64_t i = 0; i < count_; i++) zeros += values[i] == 0;
    return zeros != 0;
  }

  const Tape& tape_;
  const PointwiseTable& table_;
  int64_t begin_ = 0, count_ = 0;
  char* at_[kPlaces];
  char* memory_;
};

// ---- transposed operands ----

constexpr int64_t kColumns = 32;
constexpr int64_t kWorthBlocks = 16384;

// A dim, not the last, along which an input is contiguous, or -1.
int32_t transposed_dim(const KernelCall& call) {
  const int32_t last = call.output(0).ndim - 1;
  for (int32_t i = 0; i < call.num_inputs; i++) {
    const TensorView& view = call.input(i);
    if (last < 1 || view.strides[last] < 8) continue;
    for (int32_t d = 0; d < last; d++)
      if (view.strides[d] == 1 && view.sizes[d] >= 16) return d;
  }
  return -1;
}

// The operands of a call in blocks of some columns: the dim of the blocks comes before the one
// along which an input is contiguous, so that a tile reads whole cache lines of that.
struct ByBlocks {
  TensorView views[kMaxFusedOperands];
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxFusedOperands][kMaxDims];

  // False, and nothing to use, where blocks would not help.
  bool split(const KernelCall& call) {
    const TensorView& whole = call.output(0);
    const int32_t across = transposed_dim(call), last = whole.ndim - 1;
    if (across < 0 || whole.ndim == kMaxDims || whole.numel < kWorthBlocks ||
        whole.sizes[last] % kColumns)
      return false;
    insert(sizes, whole.sizes, across, last, whole.sizes[last] / kColumns);
    sizes[last + 1] = kColumns;
    for (int32_t i = 0; i < call.num_inputs + call.num_outputs; i++) {
      const TensorView& view = call.tensors[i];
      insert(strides[i], view.strides, across, last, view.strides[last] * kColumns);
      views[i] = view;
      views[i].sizes = sizes;
      views[i].strides = strides[i];
      views[i].ndim = view.ndim + 1;
    }
    return true;
  }

 private:
  static void insert(int64_t* to, const int64_t* from, int32_t at, int32_t last, int64_t value) {
    for (int32_t d = 0; d <= last; d++) to[d < at ? d : d + 1] = from[d];
    to[at] = value;
  }
};

const char* divisor_of(const FusedProgram& program) {
  for (int32_t i = 0; i < program.num_steps; i++)
    if (program.steps[i].compute == ComputeType::Int64 && program.steps[i].op >= 0 &&
        divides(static_cast<PointwiseOp>(program.steps[i].op)))
      return kFusedOps[program.steps[i].op].name;
  return "fused_pointwise";
}

}  // namespace

Status fused_pointwise(const KernelCall& given) {
  FusedProgram program;
  const Status status = decode(given, program);
  if (!status.ok()) return status;
  const int64_t n = given.output(0).numel;
  KernelCall call = given;
  ByBlocks blocks_of_columns;
  if (blocks_of_columns.split(given)) call.tensors = blocks_of_columns.views;
  if (n == 0) return kOk;
  Tape& tape = *new (scratch(0, sizeof(Tape))) Tape;  // too large for some stacks
  Translator(call, program, tape).translate();
  std::atomic<bool> failed{false};
  const int64_t blocks = tape.grain / kBlock;
  parallel_for((n + kBlock - 1) / kBlock, blocks > 1 ? blocks : 1, [&](int64_t begin, int64_t end) {
    if (!Runner(tape).run(begin * kBlock, end * kBlock < n ? end * kBlock : n)) failed = true;
  });
  if (!failed) return kOk;
  return fail(call.error, Code::Invalid, "ZeroDivisionError: %s of integers by zero",
              divisor_of(program));
}

}  // namespace shardwise::cpu
