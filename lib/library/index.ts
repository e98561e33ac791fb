/** Ops of users. */
export {
  type AutogradRule,
  type CustomOp,
  type CustomOpOptions,
  customOp,
  type Grad,
  type OutputDescription,
} from './custom-op.js';
export {
  type DispatchedCall,
  type DispatchMode,
  hasOp,
  withDispatchMode,
} from './dispatch-mode.js';
