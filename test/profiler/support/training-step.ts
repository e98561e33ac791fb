/** A small step of training to profile. */
import { nn, optim, randn } from '../../../lib/index.js';

/** Forward, backward and optimizer of two layers on a batch of 4. */
export function trainingStep(device: 'cpu' | 'cuda' = 'cpu'): {
  readonly model: nn.Module<[x: ReturnType<typeof randn>], ReturnType<typeof randn>>;
  readonly step: () => void;
} {
  const model = new nn.Sequential(new nn.Linear(8, 16), new nn.ReLU(), new nn.Linear(16, 2));
  model.to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3 });
  const x = randn([4, 8], { device });
  const step = (): void => {
    optimizer.zeroGrad();
    model(x).square().mean().backward();
    optimizer.step();
  };
  step();
  return { model: model as never, step };
}
