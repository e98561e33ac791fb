/**
 * Sharing between a result and its input is PyTorch's: views are new tensors, some functions return
 * their argument, and no other result shares memory.
 */
import assert from 'node:assert/strict';
import * as shardwise from '../../lib/index.js';
import { ones, type Tensor, tensor } from '../../lib/index.js';

const F = shardwise.nn.functional;
const scalar = (): Tensor => tensor(3);
const vector = (): Tensor => tensor([1, 2, 3]);
const matrix = (): Tensor =>
  tensor([
    [1, 2, 3],
    [4, 5, 6],
  ]);
const of = (shape: readonly number[]): Tensor => shardwise.ones(shape);
const index = (data: number | number[]): Tensor => tensor(data, { dtype: shardwise.int64 });

type Cases = Record<string, [input: () => Tensor, call: (x: Tensor) => Tensor | undefined]>;

/** Calls that view all of their input. */
const views: Cases = {
  'reshape to the same shape': [matrix, (x) => x.reshape(x.shape)],
  'reshape of a vector to -1': [vector, (x) => x.reshape(-1)],
  'reshape without dims': [scalar, (x) => x.reshape([])],
  reshapeAs: [matrix, (x) => x.reshapeAs(x)],
  'flatten without dims': [scalar, (x) => x.flatten()],
  'flatten of several dims': [() => of([3, 1]), (x) => x.flatten()],
  'ravel of a vector': [vector, (x) => x.ravel()],
  't of a vector': [vector, (x) => x.t()],
  't without dims': [scalar, (x) => x.t()],
  'transpose without dims': [scalar, (x) => x.transpose(0, -1)],
  'transpose of one dim': [matrix, (x) => x.transpose(1, 1)],
  'swapaxes without dims': [scalar, (x) => x.swapaxes(0, 0)],
  'T without dims': [scalar, (x) => x.T],
  'movedim without dims': [scalar, (x) => x.movedim(0, 0)],
  'movedim to the same place': [matrix, (x) => x.movedim(0, 0)],
  'permute in the same order': [matrix, (x) => x.permute(0, 1)],
  'expand to the same shape': [matrix, (x) => x.expand(x.shape)],
  broadcastTo: [matrix, (x) => shardwise.broadcastTo(x, [2, 3])],
  'squeeze of nothing': [matrix, (x) => x.squeeze()],
  'view of the same shape': [matrix, (x) => x.view(x.shape)],
  'unflatten into one': [matrix, (x) => x.unflatten(1, [3])],
  'narrow to all': [matrix, (x) => x.narrow(0, 0, 2)],
  'slice of all': [matrix, (x) => x.slice()],
  'index by whole dims': [matrix, (x) => x.index([null, null])],
  'index by nothing': [matrix, (x) => x.index([])],
  'split into one': [matrix, (x) => x.split(2)[0]],
  'meshgrid of one vector': [vector, (x) => shardwise.meshgrid([x])[0]],
  'einsum that permutes': [matrix, (x) => shardwise.einsum('ij->ji', x)],
  'einsum that does nothing': [matrix, (x) => shardwise.einsum('ij->ij', x)],
};

describe('a view of a whole tensor', () => {
  for (const [name, [input, call]] of Object.entries(views)) {
    it(`is another tensor object: ${name}`, () => {
      const x = input();
      const y = call(x) as Tensor;
      assert.ok(y !== x, 'it is the tensor itself');
      assert.ok(y.untypedStorage() === x.untypedStorage(), 'it is a copy');
      assert.ok(y._base === x, 'it is a view of something else');
      assert.deepEqual(y.tolist(), call(x.clone())?.tolist());
    });
  }

  it('has its own flags and hooks', () => {
    const p = tensor([1, 2], { requiresGrad: true });
    const same = p.reshape([2]);
    assert.equal(same.isLeaf, false);
    assert.throws(() => same.requiresGrad_(false), shardwise.AutogradError);
    let seen = 0;
    same.registerHook(() => void seen++);
    p.mul(2).sum().backward();
    assert.equal(seen, 0);
    same.sum().backward();
    assert.equal(seen, 1);
    assert.deepEqual(p.grad?.tolist(), [3, 3]);
  });

  it('that was created under noGrad cannot be changed in place where gradients are recorded', () => {
    const y = tensor([1, 2], { requiresGrad: true }).mul(1);
    const same = shardwise.noGrad(() => y.reshape([2]));
    assert.throws(() => same.mul_(2), shardwise.InPlaceError);
  });
});

/** Calls that return their argument if nothing changes. */
const same: Cases = {
  'flatten of one dim': [vector, (x) => x.flatten()],
  'flatten from a dim to itself': [matrix, (x) => x.flatten(1, -1)],
  contiguous: [matrix, (x) => x.contiguous()],
  'to of the dtype': [matrix, (x) => x.to(shardwise.float32)],
  float: [matrix, (x) => x.float()],
  typeAs: [matrix, (x) => x.typeAs(x)],
  cpu: [matrix, (x) => x.cpu()],
  atleast1d: [vector, shardwise.atleast1d],
  atleast2d: [matrix, shardwise.atleast2d],
  atleast3d: [() => of([1, 2, 3]), shardwise.atleast3d],
  sumToSize: [matrix, (x) => x.sumToSize([2, 3])],
  positive: [matrix, (x) => x.positive()],
  'cartesianProd of one vector': [vector, (x) => shardwise.cartesianProd(x)],
  'dropout that does nothing': [matrix, (x) => F.dropout(x, 0.5, false)],
};

describe('a function without an effect', () => {
  for (const [name, [input, call]] of Object.entries(same)) {
    it(`returns its argument: ${name}`, () => {
      const x = input();
      assert.ok(call(x) === x);
    });
  }
});

/** Calls that change nothing or look like views, but copy in PyTorch. */
const copies: Cases = {
  'repeat once': [matrix, (x) => x.repeat(1, 1)],
  'tile once': [matrix, (x) => x.tile(1)],
  'repeatInterleave once': [matrix, (x) => x.repeatInterleave(1, 0)],
  'repeatInterleave of one slice': [() => of([1, 3]), (x) => x.repeatInterleave(2, 0)],
  'repeatInterleave of one element': [scalar, (x) => x.repeatInterleave(2)],
  'repeatInterleave of nothing': [() => of([0]), (x) => x.repeatInterleave(2)],
  'rot90 by nothing': [matrix, (x) => shardwise.rot90(x, 0)],
  'rot90 of one element': [() => of([1, 1]), (x) => shardwise.rot90(x, 1)],
  'flip without dims': [matrix, (x) => x.flip([])],
  'roll by nothing': [matrix, (x) => x.roll(0)],
  'roll of nothing': [() => of([0]), (x) => x.roll(1)],
  'roll of nothing along a dim': [() => of([2, 0]), (x) => x.roll(1, 1)],
  'roll along no dims': [scalar, (x) => x.roll(1)],
  'diff of order 0': [vector, (x) => x.diff(0)],
  'diff of nothing': [() => of([0]), (x) => x.diff()],
  'max without dims': [scalar, (x) => x.max(0).values],
  'min without dims': [scalar, (x) => x.min(0).values],
  'max of one element': [() => of([1]), (x) => x.max(0).values],
  'amax without dims': [scalar, (x) => x.amax(0)],
  'aminmax without dims': [scalar, (x) => x.aminmax({ dim: 0 }).min],
  'median without dims': [scalar, (x) => x.median(0).values],
  'median of all, without dims': [scalar, (x) => x.median()],
  'kthvalue without dims': [scalar, (x) => x.kthvalue(1).values],
  'kthvalue of one element': [() => of([1]), (x) => x.kthvalue(1).values],
  'sort without dims': [scalar, (x) => x.sort().values],
  'topk of all': [() => of([1]), (x) => x.topk(1).values],
  'quantile without dims': [scalar, (x) => x.quantile(0.5)],
  'cumsum without dims': [scalar, (x) => x.cumsum(0)],
  'cumprod of one element': [() => of([1]), (x) => x.cumprod(0)],
  'sum without dims': [scalar, (x) => x.sum(0)],
  'prod without dims': [scalar, (x) => x.prod()],
  'mean without dims': [scalar, (x) => x.mean()],
  'norm without dims': [scalar, (x) => x.norm()],
  'logsumexp without dims': [scalar, (x) => x.logsumexp(0)],
  'softmax without dims': [scalar, (x) => x.softmax(0)],
  'trace of one element': [() => of([1, 1]), (x) => x.trace()],
  'nansum of whole numbers': [() => index([1]), (x) => x.nansum(0)],
  'trunc of whole numbers': [() => index([1]), (x) => x.trunc()],
  'round of whole numbers': [() => index([1]), (x) => x.round()],
  'floor of whole numbers': [() => index([1]), (x) => x.floor()],
  'ceil of whole numbers': [() => index([1]), (x) => x.ceil()],
  'nanToNum of whole numbers': [() => index([1]), (x) => x.nanToNum()],
  'abs of bytes': [() => of([2]).byte(), (x) => x.abs()],
  'cat of one': [matrix, (x) => shardwise.cat([x])],
  'stack of one': [matrix, (x) => shardwise.stack([x])],
  'hstack of one': [matrix, (x) => shardwise.hstack([x])],
  'vstack of one': [matrix, (x) => shardwise.vstack([x])],
  'dstack of one': [matrix, (x) => shardwise.dstack([x])],
  'columnStack of one': [matrix, (x) => shardwise.columnStack([x])],
  'blockDiag of one': [matrix, (x) => shardwise.blockDiag(x)],
  'kron with one': [() => of([1, 1]), (x) => shardwise.kron(x, of([1, 1]))],
  'diag of a matrix': [matrix, (x) => x.diag()],
  'diag of one element': [() => of([1]), (x) => x.diag()],
  'diagEmbed of one element': [() => of([1]), (x) => x.diagEmbed()],
  'diagflat of one element': [() => of([1]), (x) => x.diagflat()],
  'tril of one element': [() => of([1, 1]), (x) => x.tril()],
  'pad by nothing': [matrix, (x) => F.pad(x, [0, 0])],
  'pad by no pairs': [matrix, (x) => F.pad(x, [])],
  'pad that takes away': [matrix, (x) => F.pad(x, [-1, 0])],
  'replicating pad that takes away': [matrix, (x) => F.pad(x, [-1, 0], { mode: 'replicate' })],
  'indexSelect without dims': [scalar, (x) => x.indexSelect(0, index([0]))],
  'gather without dims': [scalar, (x) => x.gather(0, index(0))],
  'gather of nothing': [matrix, (x) => x.gather(0, index([]).reshape(0, 3))],
  'takeAlongDim of nothing': [matrix, (x) => x.takeAlongDim(index([]).reshape(0, 3), 0)],
  'takeAlongDim of all': [vector, (x) => x.takeAlongDim(index([0, 1, 2]))],
  'take of one element': [scalar, (x) => x.take(index([0]))],
  'maskedSelect of all': [matrix, (x) => x.maskedSelect(x.gt(0))],
  'maskedFill of nothing': [matrix, (x) => x.maskedFill(x.lt(0), 1)],
  'maskedScatter of nothing': [matrix, (x) => x.maskedScatter(x.lt(0), of([0]))],
  'indexPut without an index': [matrix, (x) => x.indexPut([], of([2, 3]))],
  'indexFill of nothing': [matrix, (x) => x.indexFill(0, index([]), 1)],
  'indexCopy of nothing': [matrix, (x) => x.indexCopy(0, index([]), of([0, 3]))],
  'indexAdd of nothing': [matrix, (x) => x.indexAdd(0, index([]), of([0, 3]))],
  'scatter of nothing': [matrix, (x) => x.scatter(0, index([]).reshape(0, 3), 1)],
  'scatterReduce of nothing': [
    matrix,
    (x) => x.scatterReduce(0, index([]).reshape(0, 3), of([0, 3]), 'sum'),
  ],
  'clamp of nothing': [matrix, (x) => x.clamp({ min: 0 })],
  'clamp of whole numbers by one side': [() => index([1]), (x) => x.clamp({ min: 0 })],
  'unique of one element': [() => of([1]), (x) => x.unique() as Tensor],
  'uniqueConsecutive of one element': [() => of([1]), (x) => x.uniqueConsecutive() as Tensor],
  'addmm without a product': [() => of([2, 2]), (x) => shardwise.addmm(x, of([2, 0]), of([0, 2]))],
  'tensordot of one element': [() => of([1]), (x) => shardwise.tensordot(x, of([1]), 0)],
  'einsum of a product': [() => of([1, 1]), (x) => shardwise.einsum('ij,jk->ik', x, of([1, 1]))],
  'where of all': [matrix, (x) => x.where(x.gt(0), 0)],
  'lerp by nothing': [matrix, (x) => x.lerp(x, 0)],
  'normalize of one element': [() => of([1, 1]), (x) => F.normalize(x)],
  'clone of one element': [scalar, (x) => x.clone()],
  'dropout of all': [matrix, (x) => F.dropout(x, 1, true)],
};

describe('a result that is not a view', () => {
  it('does not keep the memory of the input alive: kthvalue', () => {
    const { values, indices } = of([100, 100]).kthvalue(2);
    for (const t of [values, indices]) {
      assert.equal(t.untypedStorage().nbytes, t.nbytes);
      assert.deepEqual(t.stride(), [1]);
    }
  });

  for (const [name, [input, call]] of Object.entries(copies)) {
    it(`shares no memory and no version with its input: ${name}`, () => {
      const x = input();
      const y = call(x) as Tensor;
      assert.ok(y !== x, 'it is the tensor itself');
      assert.ok(y.untypedStorage() !== x.untypedStorage(), 'it shares memory');
      const before = x.tolist();
      y.add_(5); // an expanded view cannot be changed
      assert.deepEqual(x.tolist(), before);
      assert.equal(x._version, 0);
    });
  }
});

describe('repeat', () => {
  it('returns a tensor that shares no memory and can be detached in place', () => {
    const repeated = ones([2], { requiresGrad: true }).repeat([1, 2]);
    assert.equal(repeated._base, null);
    repeated.detach_();
    assert.ok(repeated.isLeaf);
  });
});
