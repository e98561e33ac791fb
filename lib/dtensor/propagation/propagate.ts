/**
 * Finds the decision for a call of an op: a cache keyed by op, params and spec ids before {@link
 * decide}. Every op call on distributed tensors comes here, so a hit must cost well below a
 * microsecond.
 */
import { getDefaultDtype } from '../../core/dtype.js';
import { ShardingError } from '../../core/errors.js';
import type { AnyOp } from '../../core/op.js';
import { contiguousStrides } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { formatMesh } from '../../distributed/device-mesh/layout.js';
import { checkMesh } from '../spec/checks.js';
import type { DTensorSpec, TensorMeta } from '../spec/spec.js';
import { paramsKey } from './cache-key.js';
import { type Decision, decide } from './decision.js';

export type { Decision } from './decision.js';

/**
 * Decides how an op runs on the ranks of its inputs' mesh.
 *
 * @param inputs the whole inputs as metadata, with wrapped numbers; a cache hit reads only the
 * dtypes of numbers
 * @param specs the spec of each input, null for numbers
 * @param into the spec of the tensor that the result is written into
 * @param outputMetas computes the metadata of the whole outputs
 * @throws ShardingError for inputs on several meshes, or if no strategy keeps the placements of a
 * tensor that is overwritten
 */
export function propagate(
  op: AnyOp,
  inputs: readonly Tensor[],
  specs: readonly (DTensorSpec | null)[],
  params: object,
  into: DTensorSpec | null = null,
  outputMetas: (
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
  ) => readonly TensorMeta[] = outputMetasOf,
): Decision {
  const { mesh } = into ?? firstSpec(op, specs);
  const key = paramsKey(op.params.keyed, params);
  const cache = cacheOf(mesh);
  const node = key === null ? null : findNode(cache, op, key, inputs, specs, into);
  if (node !== null && node.decision !== null) return node.decision;
  checkOneMesh(op, specs, into);
  const overwritten = op.mutates?.(inputs, params) ?? [];
  const decision = decide({
    op,
    inputs,
    specs,
    params,
    into,
    mesh,
    outputMetas: outputMetas(op, inputs, params),
    overwritten,
  });
  if (node !== null) remember(cache, node, decision);
  return decision;
}

/** A trie node; the path is op, params, the specs of the inputs, the spec of `into`. */
class Node {
  readonly next = new Map<number, Node>();
  decision: Decision | null = null;

  step(key: number): Node {
    let node = this.next.get(key);
    if (node === undefined) {
      node = new Node();
      this.next.set(key, node);
    }
    return node;
  }
}

/** The decisions of one mesh, collected with it. */
interface DecisionCache {
  /** By op and default dtype, then by cache key of the params. */
  readonly ops: Map<number, Map<string, Node>>;
  size: number;
}

/** A limit, so that a program with ever new shapes does not fill memory. */
const MOST_DECISIONS = 50_000;
const MOST_DTYPES = 16;
const caches = new WeakMap<DTensorSpec['mesh'], DecisionCache>();

function cacheOf(mesh: DTensorSpec['mesh']): DecisionCache {
  let cache = caches.get(mesh);
  if (cache === undefined) {
    cache = { ops: new Map(), size: 0 };
    caches.set(mesh, cache);
  }
  return cache;
}

function findNode(
  cache: DecisionCache,
  op: AnyOp,
  key: string,
  inputs: readonly Tensor[],
  specs: readonly (DTensorSpec | null)[],
  into: DTensorSpec | null,
): Node {
  // The default dtype is the result dtype of ops on integers and numbers. A custom op may get a
  // rule after calls without one.
  const variant = getDefaultDtype().code * 2 + Number(op.sharding !== null);
  const opKey = op.id * 2 * MOST_DTYPES + variant;
  let byParams = cache.ops.get(opKey);
  if (byParams === undefined) cache.ops.set(opKey, (byParams = new Map()));
  let node = byParams.get(key);
  if (node === undefined) byParams.set(key, (node = new Node()));
  for (let i = 0; i < specs.length; i++) {
    const spec = specs[i] as DTensorSpec | null;
    node = node.step(spec === null ? numberKey(inputs[i] as Tensor) : spec.id);
  }
  return node.step(into === null ? 0 : into.id);
}

/** Negative, because spec ids are positive. Only the dtype of a number influences promotion. */
function numberKey(number: Tensor): number {
  return -1 - number.dtype.code;
}

function remember(cache: DecisionCache, node: Node, decision: Decision): void {
  if (cache.size >= MOST_DECISIONS) {
    cache.ops.clear();
    cache.size = 0;
  }
  node.decision = decision;
  cache.size++;
}

function firstSpec(op: AnyOp, specs: readonly (DTensorSpec | null)[]): DTensorSpec {
  for (let i = 0; i < specs.length; i++) {
    const spec = specs[i];
    if (spec) return spec;
  }
  throw new ShardingError(
    `${op.name}: expected at least one distributed tensor among its inputs, got none`,
    { op: op.name },
  );
}

function checkOneMesh(
  op: AnyOp,
  specs: readonly (DTensorSpec | null)[],
  into: DTensorSpec | null,
): void {
  const all = [...specs, into].filter((spec) => spec !== null);
  const first = all[0];
  const other = all.find((spec) => spec.mesh !== first?.mesh);
  if (first === undefined || other === undefined) return;
  for (const { mesh } of all) checkMesh(op.name, mesh);
  throw new ShardingError(
    `${op.name}: expected all tensors on one mesh, got one on ${formatMesh(first.mesh)} and ` +
      `one on another ${formatMesh(other.mesh)}. ` +
      'Take fullTensor() of one and distribute it on the mesh of the other.',
    { op: op.name, specs },
  );
}

/** The metadata of the whole outputs, by the op's shape rule on the whole inputs. */
export function outputMetasOf(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
): readonly TensorMeta[] {
  if (op.view !== null) {
    const input = inputs[0] as Tensor;
    const { shape, strides, dtype = input.dtype } = op.view(input, params);
    return [{ shape, strides, dtype }];
  }
  return op.meta(inputs, params).map(({ shape, strides, dtype }) => ({
    shape,
    strides: strides ?? contiguousStrides(shape),
    dtype,
  }));
}
