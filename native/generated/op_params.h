// Written by `npm run generate` from lib/ops. Do not edit.
// One struct per kernel with parameters, every field a double: integers up to 2^53 are exact, booleans are 0 or 1.
#pragma once

namespace shardwise {

struct AdamStepParams {
  double count;
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double decoupled;
  double amsgrad;
  double maximize;
  double bias_correction1;
  double bias_correction2;
  double grad_scale;
};

struct AdamStepCapturableParams {
  double count;
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double decoupled;
  double amsgrad;
  double maximize;
  double grad_scale;
};

struct AddRmsNormParams {
  double eps;
};

struct ArangeParams {
  double start;
  double step;
};

struct AttentionParams {
  double scale;
  double causal;
  double dropout;
  double seed_low;
  double seed_high;
  double offset;
};

struct AttentionBackwardParams {
  double scale;
  double causal;
  double dropout;
  double seed_low;
  double seed_high;
  double offset;
};

struct ChunkCatParams {
  double count;
  double chunks;
};

struct CrossEntropyParams {
  double ignore_index;
  double label_smoothing;
};

struct CrossEntropyBackwardParams {
  double ignore_index;
  double label_smoothing;
  double first_class;
  double classes;
};

struct CrossEntropyStatisticsParams {
  double ignore_index;
  double label_smoothing;
  double first_class;
  double classes;
};

struct DropoutParams {
  double seed_low;
  double seed_high;
  double offset;
  double probability;
};

struct FillParams {
  double value_high;
  double value_low;
};

struct ForeachAddParams {
  double count;
  double alpha;
};

struct ForeachAddScalarParams {
  double count;
  double scalar;
};

struct ForeachCopyParams {
  double count;
};

struct ForeachMulParams {
  double count;
  double scalar;
};

struct ForeachNormParams {
  double count;
};

struct IndexAddParams {
  double alpha;
};

struct IndexGetParams {
  double num_indices;
};

struct IndexPutParams {
  double num_indices;
  double accumulate;
};

struct LayerNormParams {
  double eps;
};

struct LinspaceParams {
  double start;
  double end;
};

struct MatmulParams {
  double alpha;
  double beta;
  double float32_precision;
};

struct NonzeroParams {
  double tile;
};

struct NonzeroRowsParams {
  double tile;
};

struct RandomBernoulliParams {
  double seed_low;
  double seed_high;
  double offset;
  double probability;
};

struct RandomIntegerParams {
  double seed_low;
  double seed_high;
  double offset;
  double low;
  double high;
};

struct RandomNormalParams {
  double seed_low;
  double seed_high;
  double offset;
  double mean;
  double std;
};

struct RandomUniformParams {
  double seed_low;
  double seed_high;
  double offset;
  double low;
  double high;
};

struct ReduceAllParams {
  double reduced_ndim;
};

struct ReduceAmaxParams {
  double reduced_ndim;
};

struct ReduceAminParams {
  double reduced_ndim;
};

struct ReduceAnyParams {
  double reduced_ndim;
};

struct ReduceArgmaxParams {
  double reduced_ndim;
};

struct ReduceArgminParams {
  double reduced_ndim;
};

struct ReduceLogsumexpParams {
  double reduced_ndim;
};

struct ReduceMeanParams {
  double reduced_ndim;
};

struct ReduceNormParams {
  double reduced_ndim;
  double order;
};

struct ReduceProdParams {
  double reduced_ndim;
};

struct ReduceSumParams {
  double reduced_ndim;
};

struct ReduceVarParams {
  double reduced_ndim;
  double correction;
};

struct RmsNormParams {
  double eps;
};

struct ScatterParams {
  double reduce;
};

struct SgdStepParams {
  double count;
  double lr;
  double momentum;
  double dampening;
  double weight_decay;
  double nesterov;
  double maximize;
  double first_step;
};

struct SgdStepCapturableParams {
  double count;
  double lr;
  double momentum;
  double dampening;
  double weight_decay;
  double nesterov;
  double maximize;
};

struct SortParams {
  double descending;
};

struct SplitWithSizesCopyParams {
  double count;
};

struct TopkParams {
  double k;
  double largest;
};

struct TriParams {
  double diagonal;
  double upper;
};

}  // namespace shardwise
