/** A train step of linear layers compiled for several ranks, after the first passes of a list. */
import { type DeviceName, nn, optim, randn, type Tensor } from '../lib/index.js';
import * as spmd from '../lib/spmd/index.js';

export const LAYERS = 5;
const MOVED = 'allReduceFused_1';

/** The sizes of a step, and what its passes do. */
export interface LayeredSetting {
  readonly dim: number;
  readonly batch: number;
  readonly device: DeviceName;
  readonly bucketMb: number;
  /** {@link LAYERS} by default. */
  readonly layers?: number;
  /** The node of the next iteration that moved gradients come before. */
  readonly target: string;
}

type Pass = readonly [name: string, pass: (gm: spmd.IterGraphModule) => void];

/** The passes in their order, the first of which does nothing, by the calls that make them. */
export function passesOf({ bucketMb, target }: LayeredSetting): readonly Pass[] {
  return [
    ['no passes', () => {}],
    [`commFusionWithConcat(gm, ${bucketMb})`, (gm) => spmd.commFusionWithConcat(gm, bucketMb)],
    ['scheduleCommWait(gm)', (gm) => spmd.scheduleCommWait(gm)],
    [
      `iterMoveGradsAndOptimizers(gm, '${MOVED}', '${target}')`,
      (gm) => {
        spmd.removeCopyFromOptimizer(gm);
        spmd.iterMoveGradsAndOptimizers(gm, MOVED, target);
      },
    ],
  ];
}

type Model = nn.Module<[x: Tensor], Tensor>;

/** A compiled step that has run once. */
export interface LayeredStep {
  readonly take: () => void;
  readonly model: Model;
  readonly gm: spmd.IterGraphModule;
}

/**
 * Makes a step with the passes up to number `last`, and takes it once, with the options that are
 * given: their number is part of the graph.
 */
export function layeredStep(
  setting: LayeredSetting,
  last: number,
  ...options: [] | [{ readonly lastTrainStep: true }]
): LayeredStep {
  const { dim, batch: rows, device, layers: length = LAYERS } = setting;
  const layers = Array.from({ length }, () => [new nn.Linear(dim, dim), new nn.ReLU()]);
  const model = (new nn.Sequential(...(layers.flat() as never[])) as unknown as Model).to(device);
  const optimizer = new optim.Adam(model.parameters(), { capturable: true, fused: true });
  const batch = randn([rows, dim], { device });
  let made: spmd.IterGraphModule | undefined;
  const gmTransformation = (module: spmd.StepModule): spmd.IterGraphModule => {
    made = new spmd.IterGraphModule(module);
    for (const [, pass] of passesOf(setting).slice(0, last + 1)) pass(made);
    made.finalizeSetup();
    return made;
  };
  const step = spmd.compile({ gmTransformation })(
    (net: Model, adam: typeof optimizer, x: Tensor): void => {
      net(x).sum().backward();
      adam.step();
      adam.zeroGrad();
    },
  );
  step(model, optimizer, batch, ...options);
  const take = (): void => step(model, optimizer, batch);
  return { take, model, gm: made as unknown as spmd.IterGraphModule };
}
