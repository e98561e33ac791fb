/** Draws calls of ops whose arguments mostly fit. */
import type { Tensor } from '../../../lib/index.js';
import type { Rng } from '../rng.js';
import { pickTensor } from './draw.js';
import type { Machine } from './machine.js';
import type { Argument, Step } from './program.js';

/**
 * Arguments after the first tensor, one letter each: d dim, D dims, n count from 0 to 3, x number,
 * o tensor that most likely broadcasts or a number, l tensor of the same shape, E the first tensor
 * has dims and elements, F it is floating, b tensor that broadcasts, m mask, i index tensor for dim
 * 0, s shape of as many elements, e expanded shape, T list with the first, k keepdim as an option,
 * f boolean.
 */
const calls: readonly (readonly [weight: number, names: string, kinds: string])[] = [
  [6, 'add sub mul', 'o'],
  [2, 'div', 'o'],
  [1, 'maximum minimum atan2 hypot logaddexp', 'b'],
  [1, 'pow fmod remainder xlogy eq lt', 'o'],
  [3, 'exp sin tanh sigmoid abs square neg relu', ''],
  [
    1,
    'log sqrt rsqrt reciprocal log1p expm1 cos floor round sign erf silu softplus gelu logsigmoid',
    '',
  ],
  [3, 'sum mean', ''],
  [2, 'sum mean amax amin logsumexp var std', 'dk'],
  [1, 'prod cumsum cumprod softmax logSoftmax flip argmax', 'd'],
  [1, 'max min sort', 'd'],
  [1, 'matmul', 'l'],
  [4, 'reshape view', 's'],
  [4, 'select', 'dn'],
  [3, 'transpose movedim', 'dd'],
  [3, 'unsqueeze squeeze unbind', 'd'],
  [3, 'expand', 'e'],
  [2, 'narrow', 'dnn'],
  [1, 'flatten t squeeze contiguous ravel', ''],
  [1, 'diagonal', ''],
  [1, 'unfold', 'dnn'],
  [1, 'chunk split', 'nd'],
  [1, 'repeatInterleave', 'End'],
  [1, 'roll', 'End'],
  [1, 'diff', 'En'],
  [1, 'repeat', 'e'],
  [2, 'clone detach', ''],
  [1, 'where', 'W'],
  [1, 'maskedFill', 'mx'],
  [1, 'indexSelect', 'Zi'],
  [1, 'indexFill', 'Zix'],
  [1, 'indexAdd', 'ZiS'],
  [1, 'cat stack', 'T'],
  [1, 'clamp', 'xx'],
  [1, 'lerp', 'Flx'],
  [1, 'double float bool long half', ''],
  [2, 'tril triu', ''],
  [1, 'norm', ''],
  [1, 'mseLoss l1Loss smoothL1Loss', 'l'],
  [5, 'add_ sub_ mul_', 'o'],
  [2, 'exp_ sin_ tanh_ relu_ sigmoid_ neg_ sqrt_ zero_ detach_', ''],
  [2, 'copy_', 'l'],
  [1, 'div_ xlogy_ pow_', 'o'],
  [1, 'fill_', 'x'],
  [1, 'maskedFill_', 'mx'],
  [1, 'clamp_', 'xx'],
];

/** Draws a call on a tensor of the program or on a kept gradient. */
export function drawCall(rng: Rng, machine: Machine): Step | null {
  const [, names, kinds] = rng.weighted(calls);
  const name = rng.pick(names.split(' '));
  const onKept = machine.kept.length > 0 && !name.endsWith('_') && rng.chance(0.08);
  const k = onKept ? rng.int(0, machine.kept.length - 1) : 0;
  const r = onKept ? 0 : pickTensor(rng, machine);
  if (r === null) return null;
  const receiver = (onKept ? machine.kept[k] : machine.tensors[r]) as Tensor;
  if (receiver.shape.length === 0 && kinds.includes('Z')) return null;
  if ((receiver.shape.length === 0 || receiver.numel() === 0) && kinds.includes('E')) return null;
  if (name.endsWith('_') && machine.fixed.has(receiver.storage)) return null;
  if (!receiver.dtype.isFloatingPoint && kinds.includes('F')) return null;
  const first: Argument = onKept ? { k } : { r };
  const draw = new Arguments(rng, machine, receiver, first);
  const args = draw.of(kinds);
  if (args === null) return null;
  const options = kinds.includes('k') && rng.chance(0.5) ? { keepdim: rng.chance(0.7) } : null;
  // Of what an op keeps for its gradient both sides have other tensors, and views made under noGrad
  // are told apart otherwise: docs/differences-from-pytorch.md.
  const noGrad = name.endsWith('_') && receiver.isLeaf && rng.chance(0.5);
  return {
    do: 'call',
    name,
    args: draw.leading(name, args),
    ...(options === null ? {} : { options }),
    ...(noGrad ? { noGrad } : {}),
  };
}

class Arguments {
  private readonly rng: Rng;
  private readonly machine: Machine;
  private readonly receiver: Tensor;
  private readonly first: Argument;

  constructor(rng: Rng, machine: Machine, receiver: Tensor, first: Argument) {
    this.rng = rng;
    this.machine = machine;
    this.receiver = receiver;
    this.first = first;
  }

  /** Draws arguments of these kinds; null if no tensor fits. */
  of(kinds: string): Argument[] | null {
    const drawn: Argument[] = [];
    for (const kind of kinds.replace(/[kEF]/g, '')) {
      const argument = this.one(kind);
      if (argument === undefined) return null;
      drawn.push(argument);
    }
    return drawn;
  }

  /** Puts lists and conditions before the receiver, where PyTorch has them. */
  leading(name: string, args: Argument[]): Argument[] {
    return name === 'cat' || name === 'stack'
      ? args
      : name === 'where'
        ? (args[0] as Argument[])
        : [this.first, ...args];
  }

  private one(kind: string): Argument | undefined {
    const { rng, receiver } = this;
    const ndim = receiver.shape.length;
    switch (kind) {
      case 'd':
        return rng.chance(0.05)
          ? rng.int(-4, 3)
          : rng.int(-Math.max(1, ndim), Math.max(1, ndim) - 1);
      case 'Z':
        return 0;
      case 'n':
        return rng.int(0, 2);
      case 'x':
        return rng.pick([-1.5, -0.5, 0, 0.5, 1, 2]);
      case 'f':
        return rng.chance(0.5);
      case 'o':
        return rng.chance(0.3)
          ? rng.pick([-2, -0.5, 0.5, 2, 3])
          : (this.tensor(
              (t) => broadcasts(t, receiver) && (t === receiver || t.storage !== receiver.storage),
            ) ?? 2);
      case 'b':
        return this.tensor((t) => broadcasts(t, receiver));
      case 'l':
        return this.tensor((t) => t.shape.join() === receiver.shape.join());
      case 'S':
        return this.tensor(
          (t) => t.shape.join() === receiver.shape.join() && t.dtype === receiver.dtype,
        );
      case 'm':
        return this.tensor((t) => t.dtype.name === 'bool');
      case 'i':
        return this.tensor((t) => t.dtype.name === 'int64' && t.shape.length === 1);
      case 's':
        return this.sameCount();
      case 'e':
        return this.expanded();
      case 'T':
        return [
          this.first,
          this.tensor((t) => t.shape.join() === receiver.shape.join()) ?? this.first,
        ];
      case 'W':
        return this.condition();
    }
    throw new Error(`no argument of kind ${kind}`);
  }

  private tensor(fits: (t: Tensor) => boolean): Argument | undefined {
    const r = pickTensor(this.rng, this.machine, fits);
    return r === null ? undefined : { r };
  }

  private sameCount(): Argument {
    const count = this.receiver.numel();
    const shapes: number[][] = [[-1], [...this.receiver.shape], [1, count], [count]];
    if (count % 2 === 0) shapes.push([2, count / 2]);
    return this.rng.pick(shapes);
  }

  private expanded(): Argument {
    const shape = this.receiver.shape.map((size) => (size === 1 ? this.rng.int(1, 3) : size));
    return this.rng.chance(0.5) || shape.length === 0 ? [this.rng.int(1, 2), ...shape] : shape;
  }

  private condition(): Argument | undefined {
    const mask = this.tensor((t) => t.dtype.name === 'bool');
    const other = this.tensor((t) => broadcasts(t, this.receiver));
    return mask === undefined || other === undefined ? undefined : [mask, this.first, other];
  }
}

function broadcasts(a: Tensor, b: Tensor): boolean {
  for (let i = 1; i <= Math.min(a.shape.length, b.shape.length); i++) {
    const [x, y] = [a.shape[a.shape.length - i], b.shape[b.shape.length - i]];
    if (x !== y && x !== 1 && y !== 1) return false;
  }
  return true;
}
