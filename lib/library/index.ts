/** Ops of users. */
export {
  type AutogradRule,
  type CustomOp,
  type CustomOpOptions,
  customOp,
  type Grad,
  type GradientContext,
  type OpResult,
  type OutputDescription,
  type SetupContext,
} from './custom-op.js';
export type { CustomShardingRule, ShardingStrategy } from './custom-sharding.js';
export {
  type DispatchedCall,
  type DispatchMode,
  hasOp,
  withDispatchMode,
} from './dispatch-mode.js';
