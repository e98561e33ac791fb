/** The features of the table in docs/compile.md, each with programs that use it. */
import {
  amp,
  autograd,
  compiler,
  enableGrad,
  forkRng,
  graphBreak,
  inferenceMode,
  library,
  manualSeed,
  memory,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { type Feature, type Program, wholeStep } from './features.js';

const given =
  (body: (x: Tensor) => unknown): Program =>
  () =>
    body;
const log: unknown[] = [];

class Doubled extends autograd.Function {
  static forward(ctx: autograd.FunctionContext, x: Tensor): Tensor {
    ctx.saveForBackward(x);
    return x.mul(2);
  }
  static backward(_ctx: autograd.FunctionContext, g: Tensor): Tensor {
    return g.mul(2);
  }
}

class Own extends nn.Parameter {}

/** A module whose forward is the function. */
class Module extends nn.Module {
  kept: unknown = null;
  count = 0;
  readonly body: (m: Module, x: Tensor) => Tensor;
  constructor(body: (m: Module, x: Tensor) => Tensor) {
    super();
    this.body = body;
  }
  forward(x: Tensor): Tensor {
    return this.body(this, x);
  }
}
const inModule =
  (body: (m: Module, x: Tensor) => Tensor): Program =>
  () => {
    const module = new Module(body);
    return (x) => module(x);
  };

const hooked =
  (register: (layer: nn.Linear) => unknown): Program =>
  () => {
    const layer = new nn.Linear(2, 2);
    register(layer);
    return (x) => layer(x);
  };

const stepping =
  (make: (p: nn.Parameter[]) => optim.Optimizer, use: (o: optim.Optimizer) => unknown): Program =>
  () => {
    const p = new nn.Parameter(ones([2]));
    p.grad = ones([2]);
    const optimizer = make([p]);
    return (x) => (use(optimizer), x.mul(p));
  };

/** A train step, which returns the loss. */
const training =
  (scalerOf: (() => amp.GradScaler) | null): Program =>
  () => {
    const p = new nn.Parameter(ones([2]));
    const optimizer = new optim.AdamW([p], capturable);
    const scaler = scalerOf?.() ?? null;
    return (x) => {
      optimizer.zeroGrad();
      const loss = x.detach().mul(p).square().sum();
      (scaler?.scale(loss) ?? loss).backward();
      if (scaler === null) optimizer.step();
      else scaler.step(optimizer);
      scaler?.update();
      return loss.detach();
    };
  };

const sgd = (p: nn.Parameter[]): optim.Optimizer => new optim.SGD(p, { lr: 0.1 });
const adam = (p: nn.Parameter[]): optim.Optimizer => new optim.Adam(p);
const capturable = { capturable: true };
const closed =
  (run: (p: nn.Parameter, x: Tensor) => unknown): Program =>
  () => {
    const p = new nn.Parameter(ones([2]));
    p.grad = ones([2]);
    return (x) => run(p, x);
  };

export const features: readonly Feature[] = [
  {
    what: 'in-place changes of arguments, outer tensors and buffers, views, `data`, `set_`',
    programs: [
      given((x) => noGrad(() => x.add_(1))),
      given((x) => x.mul(2).relu_()),
      given((x) => x.mul(2).view([2]).narrow(0, 0, 1).fill_(1)),
      closed((p, x) => noGrad(() => p.copy_(x))),
      given((x) => x.data.mul_(2)),
      given((x) => noGrad(() => x.detach().set_(zeros([2])))),
      () => {
        const norm = new nn.BatchNorm1d(2);
        return (x) => norm(x.reshape([2, 1]).expand([2, 2]));
      },
    ],
  },
  {
    what: '`resize_` of storages, `untypedStorage().size()`, `_version`, version overrides',
    programs: [
      given((x) => {
        const buffer = x.detach().mul(1);
        buffer.untypedStorage().resize_(0);
        return x.mul(2);
      }),
      given((x) => x.mul(x.untypedStorage().size())),
      given((x) => x.mul(x._version + 1)),
      given((x) => autograd.unsafePreserveVersionCounter(x, () => noGrad(() => x.add_(1)))),
    ],
  },
  {
    what: 'random numbers, dropout, seeds, `forkRng`',
    programs: [
      given((x) => x.add(rand([2]))),
      given((x) => nn.functional.dropout(x, 0.5)),
      given((x) => (manualSeed(1), x.add(rand([2])))),
      given((x) => forkRng(() => x.add(rand([2])))),
    ],
  },
  {
    what: 'grad modes, autocast, `inferenceMode`',
    programs: [
      given((x) => noGrad(() => x.mul(2))),
      given((x) => noGrad(() => enableGrad(() => x.mul(2)))),
      given((x) =>
        amp.autocast({ deviceType: 'cpu' }, () =>
          x
            .reshape([1, 2])
            .matmul(ones([2, 2]))
            .float(),
        ),
      ),
      given((x) => inferenceMode(() => x.detach().mul(2)).shape),
    ],
  },
  {
    what: 'control flow on shapes, dtypes and plain arguments',
    programs: [
      given((x) => (x.shape[0] === 2 ? x.mul(2) : x)),
      given((x) => (x.dtype.isFloatingPoint && x.requiresGrad ? x.mul(2) : x)),
      given((x) => (log.length > 1e9 ? x : x.mul(3))),
    ],
  },
  {
    what: 'written values, `new nn.Parameter`, `requiresGrad_`, `detach_`, `retainGrad`',
    programs: [
      given((x) => x.mul(tensor([1, 2]))),
      given((x) => x.mul(new nn.Parameter(ones([2])))),
      given((x) => x.mul(ones([2]).requiresGrad_())),
      given((x) => x.mul(2).detach_()),
      given((x) => x.mul(2).retainGrad()),
    ],
  },
  {
    what: 'subclasses of Parameter',
    programs: [given((x) => x.mul(new Own(ones([2]))))],
    instead: 'make them outside',
  },
  {
    what: '`autograd.Function`',
    programs: [given((x) => Doubled.apply(x))],
  },
  {
    what: 'hooks of tensors, nodes and accumulated gradients',
    programs: [
      given((x) => x.mul(2).registerHook((g) => g.mul(2)) && x.mul(2)),
      given((x) => {
        const y = x.mul(2);
        y.registerHook((g) => g.mul(y.detach()));
        return y;
      }),
      given((x) => {
        const y = x.mul(2);
        y.gradFn?.registerHook(() => {});
        return y;
      }),
      closed((p, x) => {
        p.registerPostAccumulateGradHook(() => {});
        return x.mul(p);
      }),
    ],
  },
  {
    what: 'hooks of modules: forward, before forward, full backward',
    programs: [
      hooked((layer) => layer.registerForwardHook((_m, _args, y) => y.mul(2))),
      hooked((layer) => layer.registerForwardPreHook((_m, [x]) => [x.mul(2)])),
      hooked((layer) => layer.registerFullBackwardHook((_m, gradients) => gradients)),
      hooked((layer) => layer.registerFullBackwardPreHook((_m, gradients) => gradients)),
    ],
  },
  {
    what: 'hooks that read values of the function’s tensors, or of several gradients; `savedTensorsHooks`',
    programs: [
      given((x) => {
        const y = x.mul(2);
        y.registerHook((g) => g.mul(y.detach().sum().item<number>()));
        return y;
      }),
      given((x) => {
        const y = x.mul(2);
        autograd.registerMultiGradHook([y], () => {}, { mode: 'all' });
        return y;
      }),
      given((x) =>
        autograd.savedTensorsHooks(
          (t) => t,
          (t) => t as Tensor,
          () => x.sin(),
        ),
      ),
    ],
    instead: 'compute with tensors; put the scope around the compiled function',
  },
  {
    what: 'attributes of modules that become a tensor or a plain value',
    programs: [
      inModule((m, x) => {
        m.kept = x.mul(2);
        return x.add(1);
      }),
      inModule((m, x) => {
        m.kept = 'used';
        return x.add(1);
      }),
    ],
  },
  {
    what: 'attributes that become another object or are deleted; arguments and counts that change',
    programs: [
      inModule((m, x) => {
        m.kept = [x.shape];
        return x.add(1);
      }),
      inModule((m, x) => {
        delete (m as Partial<Module>).kept;
        return x.add(1);
      }),
    ],
    instead: 'keep such state in a tensor',
  },
  {
    what: '`.grad`: reading, assigning, `zeroGrad`',
    programs: [
      closed((p, x) => x.mul(p.grad as Tensor)),
      closed((p, x) => {
        p.grad = x.detach().mul(2);
        return x;
      }),
      stepping(sgd, (o) => o.zeroGrad()),
    ],
  },
  {
    what: 'steps of optimizers with `capturable: true`',
    programs: [
      stepping(
        (p) => new optim.Adam(p, capturable),
        (o) => o.step(),
      ),
      stepping(
        (p) => new optim.AdamW(p, capturable),
        (o) => o.step(),
      ),
      stepping(
        (p) => new optim.SGD(p, { lr: 0.1, ...capturable }),
        (o) => o.step(),
      ),
    ],
    instead: 'pass the optimizer as an argument',
  },
  {
    what: 'other steps, states of optimizers, schedules, `GradScaler` without backward',
    programs: [
      stepping(sgd, (o) => o.step()),
      stepping(adam, (o) => o.step()),
      stepping(sgd, (o) => o.loadStateDict(o.stateDict())),
      stepping(sgd, (o) => new optim.lrScheduler.StepLR(o, 1).step()),
      stepping(sgd, (o) => new amp.GradScaler({ device: 'cpu' }).step(o)),
    ],
    instead: '`capturable: true`; schedules after the compiled step',
  },
  {
    what: '`backward` and `autograd.grad`, also with steps of optimizers and `GradScaler`',
    programs: [
      given((x) => (x.mul(2).sum().backward(), x)),
      given((x) => autograd.grad(x.mul(x).sum(), [x])[0]),
      training(null),
      training(() => new amp.GradScaler({ device: 'cpu' })),
    ].map(wholeStep),
    instead: 'optimizers with `capturable: true`',
  },
  {
    what: 'the same beside results through which backward can run still',
    programs: [
      given((x) => (x.mul(2).sum().backward(), x)),
      given((x) => autograd.grad(x.mul(x).sum(), [x])[0]),
    ],
    instead: 'return them detached',
  },
  {
    what: 'reading values: `item`, `tolist`, `equal`, `nonzero`, the text of a tensor',
    programs: [
      given((x) => x.mul(x.detach().sum().item<number>())),
      given((x) => (x.tolist(), x.mul(2))),
      given((x) => (x.equal(ones([2])) ? x : x.mul(2))),
      given((x) => (x.detach().nonzero(), x.mul(2))),
      given((x) => x.mul(`${x.detach()}`.length)),
    ],
    instead: '`where` and other ops',
  },
  {
    what: '`graphBreak`, `compiler.disable`',
    programs: [
      given((x) => (graphBreak(), x.mul(2))),
      given(compiler.disable((x: Tensor) => x.mul(2))),
    ],
  },
  {
    what: 'asynchronous functions and generators',
    programs: [
      given(async (x) => {
        const layer = new nn.Linear(2, 2);
        const y = layer(x);
        await null;
        return y;
      }),
      given(function* (x: Tensor) {
        yield x.mul(2);
      }),
    ],
    instead: 'compile the functions and modules that they call',
  },
  {
    what: 'results of `sort`, `max` and `topk`, in arrays, objects and Maps',
    programs: [given((x) => x.sort()), given((x) => ({ all: new Map([[1, [x.topk(1)]]]) }))],
  },
  {
    what: 'results in Sets and instances of classes',
    programs: [
      given((x) => new Set([x.mul(2)])),
      given(
        (x) =>
          new (class {
            y = x.mul(2);
          })(),
      ),
    ],
    instead: 'return tensors, arrays, objects or Maps',
  },
  {
    what: 'memory statistics, `FakeTensorMode`, definitions of ops, launching ranks',
    programs: [
      given((x) => (memory.stats(), x.mul(2))),
      () => {
        let next = 0;
        const id = features.length + Math.floor(performance.now() * 1e3);
        return (x) => {
          library.customOp(`features::op${id}_${next++}`, {}, (t: Tensor) => t.mul(2));
          return x.mul(2);
        };
      },
    ],
    instead: 'do it outside',
  },
];
