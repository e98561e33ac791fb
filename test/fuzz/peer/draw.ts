/** Draws programs. A program runs while it is drawn, so each step fits the tensors that exist. */
import type { Tensor } from '../../../lib/index.js';
import type { Rng } from '../rng.js';
import { drawCall } from './draw-call.js';
import { Machine } from './machine.js';
import type { Program, Ref, Scalar, Step } from './program.js';

/** Larger tensors are dropped, so that programs stay readable and records small. */
const MOST_ELEMENTS = 24;
const SHAPES: readonly (readonly number[])[] = [
  [],
  [1],
  [2],
  [3],
  [4],
  [2, 2],
  [2, 3],
  [3, 1],
  [1, 3],
  [2, 1, 3],
  [2, 2, 2],
  [0],
  [2, 0],
];

/** Ops that record one node both here and in PyTorch. */
const ONE_NODE = new Set([
  'add',
  'sub',
  'mul',
  'exp',
  'sin',
  'cos',
  'tanh',
  'sigmoid',
  'neg',
  'relu',
]);

type Draw = (rng: Rng, machine: Machine) => Step | null;

/** A drawn program, its answer, and the error that ended it if it is not the library's. */
export interface Drawn {
  readonly program: Program;
  readonly machine: Machine;
  readonly error?: unknown;
}

/** Draws a program and runs it. */
export function drawProgram(rng: Rng, seed: number): Drawn {
  const machine = new Machine();
  const steps: Step[] = [];
  const add = (step: Step | null): void => {
    if (step === null) return;
    steps.push(step);
    machine.run(step);
  };
  const program = { seed, steps };
  try {
    for (let i = 0; i < 3; i++) add(drawTensor(rng));
    const count = rng.int(5, 16);
    for (let i = 0; i < count; i++) add(rng.weighted(kinds)[1](rng, machine));
    add(drawBackward(rng, machine));
    return { program, machine };
  } catch (error) {
    return { program, machine, error };
  }
}

const kinds: readonly (readonly [number, Draw])[] = [
  [1, (rng) => drawTensor(rng)],
  [12, drawCall],
  [2.5, drawBackward],
  [1, drawGrad],
  [1.5, drawHook],
  [1, (rng, machine) => ofTensor(rng, machine, (of) => ({ do: 'readGrad', of }), hasGrad)],
  [0.7, drawSetGrad],
  [
    0.7,
    (rng, machine) =>
      ofTensor(
        rng,
        machine,
        (of) => ({ do: 'retainGrad', of }),
        (t) => t.requiresGrad,
      ),
  ],
  [
    0.4,
    (rng, machine) =>
      ofTensor(rng, machine, (of) => ({ do: 'requiresGrad', of, value: rng.chance(0.5) })),
  ],
  [
    0.8,
    (rng, machine) =>
      ofTensor(
        rng,
        machine,
        (of) => ({ do: 'function', kind: rng.pick(['same', 'triple', 'constant'] as const), of }),
        isDouble,
      ),
  ],
  [0.6, drawModule],
  [0.6, drawOptimizer],
  [
    0.8,
    (rng, { optimizers }) =>
      optimizers.length === 0 ? null : { do: 'step', optimizer: rng.int(0, optimizers.length - 1) },
  ],
  [
    0.6,
    (rng, { optimizers }) =>
      optimizers.length === 0
        ? null
        : {
            do: 'zeroGrad',
            optimizer: rng.int(0, optimizers.length - 1),
            setToNone: rng.chance(0.5),
          },
  ],
  [
    0.4,
    (rng, machine) =>
      ofTensor(
        rng,
        machine,
        (of) => ({ do: 'clip', of: [of], maxNorm: rng.pick([0.5, 1, 2]) }),
        hasGrad,
      ),
  ],
];

const hasGrad = (t: Tensor): boolean => t.gradTensor !== null;
const isDouble = (t: Tensor): boolean => t.dtype.name === 'float64';

/** Picks a tensor that fits; later ones are likelier, so that steps depend on each other. */
export function pickTensor(
  rng: Rng,
  { tensors }: Machine,
  fits: (t: Tensor) => boolean = () => true,
): number | null {
  const candidates = [...tensors.keys()].filter((i) => {
    const t = tensors[i] as Tensor;
    return t.numel() <= MOST_ELEMENTS && fits(t);
  });
  if (candidates.length === 0) return null;
  const from = rng.chance(0.5) ? 0 : Math.floor(candidates.length / 2);
  return candidates[rng.int(from, candidates.length - 1)] as number;
}

function ofTensor(
  rng: Rng,
  machine: Machine,
  make: (of: Ref) => Step,
  fits?: (t: Tensor) => boolean,
): Step | null {
  const r = pickTensor(rng, machine, fits);
  return r === null ? null : make({ r });
}

/**
 * Another tensor of the same shape, a result or a kept gradient, that requires no gradient: the
 * peer clones it, which would record a node.
 */
function like(rng: Rng, machine: Machine, t: Tensor): Ref | null {
  const same = (other: Tensor): boolean =>
    !other.requiresGrad && other.dtype === t.dtype && other.shape.join() === t.shape.join();
  const kept = machine.kept.findIndex(same);
  if (kept >= 0 && rng.chance(0.4)) return { k: kept };
  const r = pickTensor(rng, machine, same);
  return r === null ? null : { r };
}

function drawTensor(rng: Rng): Step {
  const dtype = rng.chance(0.85)
    ? 'float64'
    : rng.pick(['float32', 'int64', 'bool', 'int32', 'uint8', 'float16', 'bfloat16']);
  const shape = rng.pick(SHAPES);
  const count = shape.reduce((n, size) => n * size, 1);
  const floating = dtype.includes('float');
  return {
    do: 'tensor',
    dtype,
    shape,
    data: rng.list(count, () => drawScalar(rng, dtype)),
    grad: floating && rng.chance(0.6),
  };
}

function drawScalar(rng: Rng, dtype: string): Scalar {
  if (dtype === 'bool') return rng.int(0, 1);
  if (dtype === 'uint8') return rng.int(0, 9);
  if (!dtype.includes('float')) return rng.int(-4, 9);
  if (rng.chance(0.04)) return rng.pick([0, 1, -1, 'nan', 'inf', '-inf'] as const);
  return Math.round((rng.unit() * 6 - 3) * 64) / 64;
}

function drawBackward(rng: Rng, machine: Machine): Step | null {
  const r = pickTensor(rng, machine, (t) => t.requiresGrad && t.gradFn !== null);
  if (r === null) return null;
  const t = machine.tensors[r] as Tensor;
  const gradient = t.numel() === 1 && rng.chance(0.5) ? null : like(rng, machine, t);
  if (gradient === null && t.numel() !== 1 && rng.chance(0.9)) return null;
  const inputs = rng.chance(0.15) ? pickTensor(rng, machine, (other) => other.requiresGrad) : null;
  return {
    do: 'backward',
    of: { r },
    gradient,
    retainGraph: rng.chance(0.5),
    createGraph: rng.chance(0.1),
    ...(inputs === null ? {} : { inputs: [{ r: inputs }] }),
  };
}

function drawGrad(rng: Rng, machine: Machine): Step | null {
  const r = pickTensor(rng, machine, (t) => t.requiresGrad && t.gradFn !== null);
  const input = pickTensor(rng, machine, (t) => t.requiresGrad);
  if (r === null || input === null) return null;
  const t = machine.tensors[r] as Tensor;
  const gradient = t.numel() === 1 && rng.chance(0.5) ? null : like(rng, machine, t);
  if (gradient === null && t.numel() !== 1) return null;
  return {
    do: 'grad',
    of: { r },
    inputs: [{ r: input }],
    gradient,
    retainGraph: rng.chance(0.6),
    createGraph: rng.chance(0.3),
  };
}

function drawHook(rng: Rng, machine: Machine): Step | null {
  const r = pickTensor(rng, machine, (t) => t.requiresGrad);
  if (r === null) return null;
  const t = machine.tensors[r] as Tensor;
  const at = ONE_NODE.has(t.gradFn?.name ?? '') && rng.chance(0.25) ? 'node' : 'tensor';
  const kind = rng.int(0, 4);
  const other = kind === 0 && at === 'tensor' ? like(rng, machine, t) : null;
  return { do: 'hook', on: { r }, at, returns: other ?? (kind <= 1 ? 'double' : 'nothing') };
}

function drawSetGrad(rng: Rng, machine: Machine): Step | null {
  const r = pickTensor(rng, machine, (t) => t.gradTensor !== null || t.leafRequiresGrad);
  if (r === null) return null;
  const to = rng.chance(0.6) ? null : like(rng, machine, machine.tensors[r] as Tensor);
  return { do: 'setGrad', of: { r }, to: to !== null && 'k' in to ? null : to };
}

function drawModule(rng: Rng, machine: Machine): Step | null {
  const r = pickTensor(rng, machine, (t) => isDouble(t) && t.shape.length > 0 && t.numel() > 0);
  if (r === null) return null;
  const { shape } = machine.tensors[r] as Tensor;
  const features = shape[shape.length - 1] as number;
  const modules: readonly (readonly [string, readonly number[]])[] = [
    ['Linear', [features, rng.int(1, 3)]],
    ['LayerNorm', [features]],
    ['ReLU', []],
    ['GELU', []],
    ['Softmax', [-1]],
    ['PReLU', []],
    ['Identity', []],
  ];
  const [name, args] = rng.pick(modules);
  return { do: 'module', name, args, of: { r }, keeps: rng.chance(0.4) };
}

function drawOptimizer(rng: Rng, machine: Machine): Step | null {
  const r = pickTensor(rng, machine, (t) => t.leafRequiresGrad && isDouble(t));
  if (r === null) return null;
  const choices: readonly (readonly [string, Record<string, number | boolean>])[] = [
    ['SGD', { lr: 0.1 }],
    ['SGD', { lr: 0.1, momentum: 0.9, nesterov: rng.chance(0.5) }],
    ['SGD', { lr: 0.1, momentum: 0.5, dampening: 0.2, weightDecay: 0.1 }],
    ['Adam', { lr: 0.05, weightDecay: 0.1, amsgrad: rng.chance(0.5) }],
    ['AdamW', { lr: 0.05 }],
  ];
  const [name, options] = rng.pick(choices);
  return { do: 'optimizer', name, options, parameters: [{ r }] };
}
