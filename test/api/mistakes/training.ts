/** Mistakes with gradients, modules, optimizers, files, compile and ranks. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { dist, type Mistake, mistake, sw } from './mistake.js';

const { autograd, nn, noGrad, ones, optim, rand, scope, tensor } = sw;
const { functional: F } = nn;

const leaf = () => rand([2, 3]).requiresGrad_();
const parameters = () => new nn.Linear(3, 2).parameters();

export const gradients: readonly Mistake[] = [
  mistake(
    'backward of several elements',
    () => leaf().mul(2).backward(),
    /Pass a gradient, or call sum\(\) first/,
  ),
  mistake(
    'backward without a graph',
    () => ones([]).backward(),
    /Call requiresGrad_\(\) on a leaf/,
  ),
  mistake(
    'backward twice',
    () => {
      const loss = leaf().mul(leaf()).sum();
      loss.backward();
      loss.backward();
    },
    /Pass \{ retainGraph: true \}/,
  ),
  mistake(
    'a gradient of another shape',
    () =>
      leaf()
        .mul(2)
        .backward(ones([3])),
    /the gradient has shape \[3\], the tensor \[2, 3\]/,
  ),
  mistake('a leaf changed in place', () => leaf().add_(1), /Change it inside noGrad/),
  mistake(
    'a saved value changed in place',
    () => {
      const y = leaf().exp();
      y.add_(1);
      y.sum().backward();
    },
    /Use the out-of-place op, or clone\(\)/,
  ),
  mistake(
    'grad of what was not used',
    () => autograd.grad(leaf().sum(), leaf()),
    /Pass \{ allowUnused: true \}/,
  ),
  mistake(
    'noGrad of an async function',
    () => noGrad(async () => ones([2])),
    /expected a synchronous function/,
  ),
  mistake(
    'scope of an async function',
    () => scope(async () => ones([2])),
    /await outside the scope/,
  ),
  mistake(
    'a tensor after its scope',
    () => {
      let kept = ones([1]);
      scope(() => {
        kept = ones([2]).add(1);
      });
      kept.tolist();
    },
    /returned from it, or passed to keep\(\)/,
  ),
  mistake(
    'a tensor after dispose()',
    () => {
      const x = ones([2]);
      x.dispose();
      x.add(1);
    },
    /dispose\(\) was called/,
  ),
];

export const modules: readonly Mistake[] = [
  mistake('nn.Conv2d', () => new nn.Conv2d(3, 8, 3), /nn\.Conv2d is not there yet/),
  mistake('nn.LSTM', () => new nn.LSTM(3, 8), /nn\.LSTM is not there yet: .*nn\.Linear/),
  mistake('nn.BatchNorm2d', () => new nn.BatchNorm2d(3), /use nn\.BatchNorm1d on x\.flatten\(2\)/),
  mistake('F.max_pool2d', () => F.maxPool2d(ones([1, 1, 4, 4]), 2), /maxPool2d is not there yet/),
  mistake('optim.RMSprop', () => new optim.RMSprop(parameters()), /use optim\.AdamW/),
  mistake('DataLoader', () => new sw.DataLoader([]), /import it from 'shardwise\/data'/),
  mistake(
    'optimizer.zero_grad()',
    () => new optim.SGD(parameters()).zero_grad(),
    /camelCase, zeroGrad$/,
  ),
  mistake(
    'model.load_state_dict()',
    () => new nn.Linear(2, 2).load_state_dict({}),
    /camelCase, loadStateDict$/,
  ),
  mistake('a layer without new', () => nn.Linear(2, 2), /without 'new'/),
  mistake(
    'a layer of other features',
    () => new nn.Sequential(new nn.Linear(4, 2))(ones([1, 3])),
    /in the module Sequential at 0 \(Linear\)/,
  ),
  mistake(
    'a layer that is given an array',
    () => new nn.Linear(2, 2)([1, 2]),
    /expected input to be a tensor, got an array of 2/,
  ),
  mistake(
    'sizes of a layer that are no numbers',
    () => new nn.Linear(2, '3'),
    /expected outFeatures to be a whole number/,
  ),
  mistake(
    'a probability above 1',
    () => new nn.Dropout(2),
    /expected p to be a finite number from 0 to 1/,
  ),
  mistake(
    'heads that do not divide',
    () => new nn.MultiheadAttention(3, 2),
    /3 features do not divide into 2 heads/,
  ),
  mistake(
    'class indices that are floats',
    () => F.crossEntropy(ones([2, 3]), ones([2])),
    /\.long\(\)/,
  ),
  mistake(
    'a class out of range',
    () => F.crossEntropy(ones([1, 3]), tensor([3]).long()).item(),
    /target 3 at position 0 is not a class: there are 3/,
  ),
  mistake(
    'indices of an embedding that are floats',
    () => new nn.Embedding(3, 2)(ones([1])),
    /convert it with \.long\(\)/,
  ),
  mistake(
    'an index of an embedding out of range',
    () => new nn.Embedding(3, 2)(tensor([3]).long()).tolist(),
    /index 3 at position 0 is out of range for size 3/,
  ),
  mistake(
    'layers in an array',
    () => {
      class Net extends nn.Module {
        layers = [new nn.Linear(2, 2)];
        forward(x: unknown): unknown {
          return x;
        }
      }
      return [...new Net().parameters()];
    },
    /Use new nn\.ModuleList\(array\)/,
  ),
  mistake(
    'weights that are missing',
    () => new nn.Linear(2, 2).loadStateDict({}),
    /missing: weight \[2, 2\], bias \[2\]/,
  ),
  mistake(
    'weights of another shape',
    () => new nn.Linear(2, 2).loadStateDict(new nn.Linear(3, 2).stateDict()),
    /the checkpoint has shape \[2, 3\], the module \[2, 2\]/,
  ),
  mistake(
    'a buffer that is no tensor',
    () => new nn.Linear(2, 2).registerBuffer('mask', [1]),
    /registerBuffer: expected .*tensor/,
  ),
  mistake(
    'an optimizer without parameters',
    () => new optim.SGD([]),
    /properties of a module, nn\.ModuleList/,
  ),
  mistake(
    'an optimizer of a model',
    () => new optim.SGD(new nn.Linear(2, 2), { lr: 0.1 }),
    /such as model\.parameters\(\), got a Linear/,
  ),
  mistake(
    'an option that does not exist',
    () => new optim.SGD(parameters(), { learningRate: 1 }),
    /there is no option "learningRate"; options are lr/,
  ),
  mistake(
    'a negative learning rate',
    () => new optim.SGD(parameters(), { lr: -1 }),
    /expected lr to be a finite number from 0, got -1/,
  ),
  mistake(
    'a schedule without an optimizer',
    () => new optim.lrScheduler.StepLR([], { stepSize: 1 }),
    /StepLR: .*optimizer/,
  ),
];

const absentFile = path.join(tmpdir(), 'shardwise-no-such-file.safetensors');

export const others: readonly Mistake[] = [
  mistake(
    'a module in place of its state',
    () => sw.saveSafetensors(absentFile, new nn.Linear(2, 2)),
    /such as module\.stateDict\(\)/,
  ),
  mistake(
    'a file that is not there',
    () => sw.loadSafetensors(absentFile),
    /no such file or directory/,
  ),
  mistake(
    'a file of torch.save',
    async () => {
      const file = path.join(mkdtempSync(path.join(tmpdir(), 'shardwise-')), 'model.pt');
      writeFileSync(file, 'PK\u0003\u0004 and so on');
      await sw.loadSafetensors(file).finally(() => rmSync(path.dirname(file), { recursive: true }));
    },
    /a zip archive, such as torch\.save writes; save it with save_file of safetensors\.torch/,
  ),
  mistake(
    'compile of what is no function',
    () => sw.compile('x'),
    /expected a function or a module/,
  ),
  mistake(
    'a backend that does not exist',
    () => sw.compile(() => 1, { backend: 'nvfuser' }),
    /known backends: eager/,
  ),
  mistake('a collective before ranks exist', () => dist.allReduce(ones([2])), /initProcessGroup/),
  mistake('a rank before ranks exist', () => dist.getRank(), /initProcessGroup/),
  mistake(
    'a backend of ranks that does not exist',
    () => dist.initProcessGroup('mpi'),
    /expected backend to be 'shm', 'nccl', 'gloo'/,
  ),
  mistake(
    'launch of no ranks',
    () => dist.launch(0, () => {}),
    /expected worldSize to be a whole number from 1 to 64/,
  ),
  mistake('dist.spawn', () => dist.spawn(() => {}, 2), /use launch\(worldSize, fn\)/),
];
