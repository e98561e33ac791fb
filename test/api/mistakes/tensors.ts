/** Mistakes with tensors: names, operators, shapes, dtypes, devices and values. */
import { type Mistake, mistake, sw } from './mistake.js';

const { ones, tensor, zeros, rand } = sw;

export const names: readonly Mistake[] = [
  mistake('x.numpy()', () => ones([2]).numpy(), /numpy is not there: await x\.read\(\) gives/),
  mistake('x.dataSync()', () => ones([2]).dataSync(), /dataSync is not there: x\.toTypedArray/),
  mistake('x.map(fn)', () => ones([2]).map(String), /map is not there: .*x\.tolist\(\)/),
  mistake('x.astype(dtype)', () => ones([2]).astype('int32'), /use x\.to\(dtype\)/),
  mistake('x.expandDims(0)', () => ones([2]).expandDims(0), /use x\.unsqueeze\(dim\)/),
  mistake('x.print()', () => ones([2]).print(), /use console\.log\(x\)/),
  mistake('x.resize_(4)', () => ones([2]).resize_([4]), /use x\.reshape\(shape\)/),
  mistake(
    'x[0] = 1',
    () => {
      ones([2])[0] = 1;
    },
    /write x\.select\(0, 0\)\.fill_\(value\)/,
  ),
  mistake('x[0].item()', () => ones([2])[0].item(), /read x\.select\(0, 0\)/),
  mistake(
    'x.requires_grad = true',
    () => {
      ones([2]).requires_grad = true;
    },
    /the name is in camelCase, requiresGrad$/,
  ),
  mistake('x.is_cuda', () => ones([2]).is_cuda, /in camelCase, isCuda$/),
  mistake('x.index_select(0, i)', () => ones([2]).index_select(0, 1), /camelCase, indexSelect$/),
  mistake('torch.linalg.svd(x)', () => sw.linalg.svd(ones([2, 2])), /linalg is not there yet/),
  mistake('torch.fft.fft(x)', () => sw.fft.fft(ones([2])), /there are no complex numbers/),
  mistake('torch.load(path)', () => sw.load('model.pt'), /use loadSafetensors or loadCheckpoint/),
  mistake('torch.from_numpy(a)', () => sw.fromNumpy([1]), /use tensor\(values\)/),
  mistake('tf.tidy(fn)', () => sw.tidy(() => ones([2])), /use scope\(fn\)/),
  mistake('a + b', () => ones([2]) + ones([2]), /write a\.add\(b\) for a \+ b/),
  mistake('a > 0', () => ones([2]) > 0, /use its methods, such as t\.mul\(2\) and t\.gt\(0\)/),
];

export const shapes: readonly Mistake[] = [
  mistake(
    'matmul of shapes that do not fit',
    () => ones([2, 3]).matmul(ones([2, 3])),
    /inner sizes differ: input has 3 columns .* other has 2 rows/,
  ),
  mistake(
    'add of shapes that do not broadcast',
    () => ones([2]).add(ones([3])),
    /Sizes must be equal, or one of them 1; reshape or unsqueeze/,
  ),
  mistake(
    'view of another number of elements',
    () => ones([2, 3]).view([4]),
    /does not hold 6 elements; the product of the sizes must be/,
  ),
  mistake('view of a transposed tensor', () => ones([2, 3]).t().view([6]), /Use reshape\(\)/),
  mistake(
    'reshape with two sizes of -1',
    () => ones([4]).reshape([-1, -1]),
    /only one size can be -1/,
  ),
  mistake(
    'cat of other sizes',
    () => sw.cat([ones([2, 3]), ones([2, 4])]),
    /only the sizes of dim 0 may differ/,
  ),
  mistake(
    'cat of another number of dims',
    () => sw.cat([ones([2]), ones([2, 2])]),
    /only the sizes of dim 0 may differ/,
  ),
  mistake(
    'stack of other shapes',
    () => sw.stack([ones([2]), ones([3])]),
    /stack takes equal shapes, cat joins along a dim/,
  ),
  mistake('cat of nothing', () => sw.cat([]), /expected at least one tensor/),
  mistake('a dim out of range', () => ones([2, 3]).sum(2), /expected -2 to 1/),
  mistake(
    'an index out of range',
    () => ones([2]).select(0, 2),
    /index 2 is out of range for dim 0 of shape \[2\]/,
  ),
  mistake(
    'a range out of range',
    () => ones([2]).narrow(0, 1, 2),
    /2 elements from 1 do not lie in dim 0/,
  ),
  mistake(
    'item() of several elements',
    () => ones([2, 3]).item(),
    /Reduce it first, or use tolist\(\)/,
  ),
  mistake(
    'permute with a dim twice',
    () => ones([2, 3]).permute(0, 0),
    /dim 0 appears more than once/,
  ),
  mistake('expand of a size that is not 1', () => ones([2]).expand([3]), /only sizes of 1 do/),
  mistake(
    'bmm of matrices',
    () => ones([2, 2]).bmm(ones([2, 2])),
    /expected input to have 3 dims, got float32\[2, 2\]/,
  ),
  mistake(
    'rows of other lengths',
    () => tensor([[1, 2], [3]]),
    /expected an array of 2 at depth 1, as in the first one/,
  ),
  mistake(
    'split into sizes that do not add up',
    () => ones([5]).split([2, 2]),
    /do not add up to 5, the size of dim 0/,
  ),
  mistake('topk of too many', () => ones([2]).topk(3), /k = 3 is out of range/),
  mistake('iteration over a number', () => [...tensor(3)], /cannot be iterated over; use item\(\)/),
  mistake(
    'a malformed einsum',
    () => sw.einsum('ij->k', ones([2, 2])),
    /expected an output of labels of the operands/,
  ),
  mistake(
    'a size that is no whole number',
    () => zeros([1.5]),
    /sizes must be non-negative integers, got 1\.5/,
  ),
];

export const values: readonly Mistake[] = [
  mistake(
    "a name of torch's dtype",
    () => zeros([2], { dtype: sw.long }),
    /long, which is not there: the dtype is int64/,
  ),
  mistake(
    'a dtype that does not exist',
    () => zeros([2], { dtype: 'float' }),
    /one of float32, float64/,
  ),
  mistake(
    'a gradient of integers',
    () => tensor([1, 2], { dtype: 'int64', requiresGrad: true }),
    /convert it with \.float\(\)/,
  ),
  mistake('the mean of integers', () => sw.arange(3).mean(), /convert it with \.float\(\)/),
  mistake(
    'matmul of two dtypes',
    () => ones([2, 2]).matmul(ones([2, 2], { dtype: 'float64' })),
    /Convert with \.to\(dtype\)/,
  ),
  mistake(
    'a fraction added to integers in place',
    () => sw.arange(3).add_(0.5),
    /convert the operands first/,
  ),
  mistake(
    'a number that the dtype does not hold',
    () => sw.full([1], -1, { dtype: 'uint8' }),
    /-1 cannot be an element of uint8/,
  ),
  mistake(
    'indices that are floats',
    () => ones([2]).index([ones([1])]),
    /convert it with \.long\(\)/,
  ),
  mistake(
    'a mask that is no bool',
    () => ones([2]).maskedFill(ones([2]), 0),
    /convert it with \.bool\(\)/,
  ),
  mistake(
    'a device that does not exist',
    () => ones([2]).to('gpu'),
    /expected a device such as 'cpu', 'cuda'/,
  ),
  mistake(
    'a GPU that is not there',
    () => ones([2]).to('cuda:63'),
    /device "cuda:63" is not available/,
  ),
  mistake(
    'values of a tensor on meta',
    () => ones([2], { device: 'meta' }).tolist(),
    /have no values/,
  ),
  mistake('tensors on two devices', () => ones([2]).add(ones([2], { device: 'meta' })), /meta/),
  mistake(
    'an option that does not exist',
    () => rand([2]).sum({ axis: 0 }),
    /there is no option "axis"; options are dim, keepdim, dtype/,
  ),
  mistake(
    'an option by position',
    () => ones([2], 'float64'),
    /others are options, in an object such as \{ dtype: … \}/,
  ),
  mistake('randint of an empty range', () => sw.randint(3, 1, [2]), /expected low < high/),
  mistake('arange that never ends', () => sw.arange(0, 3, 0), /cannot step from 0 to 3 by 0/),
  mistake('a sent tensor', () => structuredClone(ones([2])), /send await x\.read\(\)/),
  mistake(
    'mseLoss of [4, 1] and [4]',
    () => sw.nn.functional.mseLoss(ones([4, 1]), ones([4])),
    /both broadcast to \[4, 4\]/,
  ),
];
