/** The seed cases of a module whose hooks gather its parameter, for a device. */
import assert from 'node:assert/strict';
import { whyNotLowered } from '../../lib/compile/graph/lowering.js';
import { type BackwardCompiler, compiledAutograd, type Graph } from '../../lib/compile/index.js';
import {
  autograd,
  cat,
  compile,
  type DeviceName,
  manualSeed,
  nn,
  noGrad,
  ops,
  rand,
  type Tensor,
} from '../../lib/index.js';
import { type CompileCounter, CompileCounterWithBackend } from '../../lib/testing/index.js';
import { assertClose, type BACKENDS, FULL } from './compiled.js';

/** Compiles backward graphs by a backend that counts them. */
export const compiledBy =
  (backend: CompileCounter): BackwardCompiler =>
  (module) =>
    compile((...inputs: Tensor[]) => module.run(inputs), {
      ...FULL,
      backend,
    }) as ReturnType<BackwardCompiler>;

/** Four steps without zeroGrad. */
export function steps(run: (x: Tensor) => Tensor, x: Tensor, afterEach = () => {}): Tensor {
  let out: Tensor | null = null;
  for (let i = 0; i < 4; i++) {
    out = run(x);
    out.sum().backward();
    afterEach();
  }
  return out as unknown as Tensor;
}

/** The values of tensors; null for none. */
export const values = (...tensors: (Tensor | null | undefined)[]): unknown =>
  tensors.map((t) => t?.tolist() ?? null);

/** 004.18 and 004.19: hooks gather the parameter of a module before it is used, and free it. */
export function gathersInHooks(backend: (typeof BACKENDS)[number], device: DeviceName): void {
  const [eager, other] = [fakeDistributed(device), fakeDistributed(device)];
  const out = steps(eager.model, eager.x);
  const [forward, backward] = [
    CompileCounterWithBackend(backend),
    CompileCounterWithBackend(backend),
  ];
  const compiled = compile(other.model, { ...FULL, backend: forward });
  const { sharded, unsharded } = other.model;
  const assertSharded = (): void => {
    assert.equal(other.model.weight, sharded);
    assert.equal(other.model.sharded, sharded);
    assert.equal(other.model.unsharded, unsharded);
    assert.equal(unsharded.untypedStorage().nbytes, 0);
  };
  assertSharded();
  const forwards = (x: Tensor): Tensor => {
    const y = compiled(x) as Tensor;
    assertSharded();
    return y;
  };
  const result = compiledAutograd.enable(compiledBy(backward), () =>
    steps(forwards, other.x, assertSharded),
  );
  assertClose(
    values(result, other.x.grad, other.model.weight, other.model.weight.grad),
    values(out, eager.x.grad, eager.model.weight, eager.model.weight.grad),
  );
  assert.deepEqual([forward.frameCount, backward.frameCount], [1, 2]);
  // The hooks of backward set the attribute, too, which only a captured backward pass repeats.
  const why = 'attributes of modules were set beside calls of functions';
  assert.deepEqual(forward.graphs.map(reasonOf), [backend === 'eager' ? null : why]);
  assert.deepEqual(backward.graphs.map(reasonOf), [null, null]);
}

/** Why a graph runs op by op through autograd; null if its backend has lowered it. */
const reasonOf = (graph: Graph): string | null => whyNotLowered(graph)?.reason ?? null;

const WORLD = 2;

interface Gathered extends nn.Linear {
  sharded: nn.Parameter;
  unsharded: nn.Parameter;
}

/** A linear layer whose hooks gather its weight before it is used, and free it after. */
function fakeDistributed(device: DeviceName): { model: Gathered; x: Tensor } {
  const allGather = (t: Tensor): Tensor => noGrad(() => cat(Array(WORLD).fill(t), 0));
  const reduceScatter = (t: Tensor): Tensor =>
    noGrad(() => t.narrow(0, 0, (t.shape[0] as number) / WORLD).clone());
  const gather = (m: nn.AnyModule): void => {
    const model = m as Gathered;
    const { unsharded } = model;
    const whole = (fill: () => void): void =>
      noGrad(() => autograd.unsafePreserveVersionCounter(unsharded, fill));
    if (compiledAutograd.isEnabled())
      whole(() => ops.fsdp.set_(unsharded, allGather(model.sharded)));
    else {
      unsharded.untypedStorage().resize_(unsharded.numel() * 4);
      whole(() => unsharded.copy_(allGather(model.sharded)));
    }
    model.weight = unsharded;
  };
  const free = (m: nn.AnyModule): void => {
    const model = m as Gathered;
    model.weight = model.sharded;
    model.unsharded.untypedStorage().resize_(0);
  };
  manualSeed(1234);
  const model = new nn.Linear(20, 10, { bias: false, device }) as unknown as Gathered;
  model.sharded = new nn.Parameter(reduceScatter(model.weight));
  model.unsharded = new nn.Parameter(allGather(model.sharded));
  model.unsharded.untypedStorage().resize_(0);
  model.weight = model.sharded;
  model.registerFullBackwardPreHook((m) => gather(m));
  model.registerFullBackwardHook((m) => {
    const grad = (m as Gathered).weight.grad as Tensor;
    const scattered = reduceScatter(grad);
    (m as Gathered).weight = (m as Gathered).sharded;
    (m as Gathered).weight.grad = scattered;
    (m as Gathered).unsharded.untypedStorage().resize_(0);
  });
  model.registerForwardPreHook((m) => gather(m));
  model.registerForwardHook((m) => free(m));
  return { model, x: rand([2, 20], { device, requiresGrad: true }) };
}
