/** Every function that takes a dtype also takes its name. */
import assert from 'node:assert/strict';
import { dtensorOnes, dtensorRand, dtensorZeros, initDeviceMesh } from '../../lib/distributed.js';
import * as sw from '../../lib/index.js';
import {
  amp,
  DeviceError,
  type DType,
  DtypeError,
  dtypeByName,
  nn,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const x = tensor([1.5, 2.5]);
type Options = { dtype: sw.DTypeLike };

/** Calls that give a tensor of the dtype they are told. */
const calls: Record<string, (options: Options) => Tensor> = {
  tensor: (o) => tensor([1, 2], o),
  'tensor of a typed array': (o) => tensor(new Float64Array([1]), o),
  'tensor of a tensor': (o) => tensor(x, o),
  asTensor: (o) => sw.asTensor([1], o),
  scalarTensor: (o) => sw.scalarTensor(1, o),
  zeros: (o) => sw.zeros([2], o),
  ones: (o) => sw.ones([2], o),
  full: (o) => sw.full([2], 1, o),
  empty: (o) => sw.empty([2], o),
  eye: (o) => sw.eye(2, o),
  arange: (o) => sw.arange(3, o),
  linspace: (o) => sw.linspace(0, 1, 3, o),
  logspace: (o) => sw.logspace(0, 1, 3, o),
  zerosLike: (o) => sw.zerosLike(x, o),
  onesLike: (o) => sw.onesLike(x, o),
  fullLike: (o) => sw.fullLike(x, 1, o),
  emptyLike: (o) => sw.emptyLike(x, o),
  newZeros: (o) => x.newZeros([1], o),
  newOnes: (o) => x.newOnes([1], o),
  newFull: (o) => x.newFull([1], 1, o),
  newEmpty: (o) => x.newEmpty([1], o),
  newTensor: (o) => x.newTensor([1], o),
  randint: (o) => sw.randint(0, 2, [2], o),
  randintLike: (o) => sw.randintLike(x, 0, 2, o),
  randperm: (o) => sw.randperm(2, o),
  'to of options': (o) => x.to(o),
  'to of a dtype': (o) => x.to(o.dtype),
  'to of a device and a dtype': (o) => x.to('cpu', o.dtype),
  type: (o) => x.type(o.dtype),
  sum: (o) => x.sum({ dtype: o.dtype }),
  prod: (o) => x.prod({ dtype: o.dtype }),
  cumsum: (o) => x.cumsum(0, o),
  cumprod: (o) => x.cumprod(0, o),
};
const floatingCalls: Record<string, (options: Options) => Tensor> = {
  rand: (o) => sw.rand([2], o),
  randn: (o) => sw.randn([2], o),
  randLike: (o) => sw.randLike(x, o),
  randnLike: (o) => sw.randnLike(x, o),
  normal: (o) => sw.normal(0, 1, [2], o),
  mean: (o) => x.mean(null, o),
  softmax: (o) => x.softmax(0, o),
  logSoftmax: (o) => x.logSoftmax(0, o),
  'nn.Linear': (o) => new nn.Linear(2, 2, o).weight,
  'nn.Linear, converted': (o) => new nn.Linear(2, 2).to(o.dtype).weight,
  'nn.Linear, converted with options': (o) =>
    new nn.Linear(2, 2).to({ dtype: o.dtype, device: 'cpu' }).weight,
  'nn.Embedding': (o) => new nn.Embedding(2, 2, o).weight,
  'nn.LayerNorm': (o) => new nn.LayerNorm(2, o).weight as Tensor,
};

const named = (name: string): DType => dtypeByName(name) as DType;

describe('the names of dtypes', () => {
  for (const [what, call] of Object.entries({ ...calls, ...floatingCalls })) {
    it(`are taken by ${what}, which lists all for an unknown name`, () => {
      const name = what in calls && what !== 'prod' ? 'int64' : 'float64';
      assert.equal(call({ dtype: name }).dtype, named(name));
      assert.equal(call({ dtype: 'float64' }).dtype, named('float64'));
      const error =
        /one of float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool, got 'float33'/;
      if (/^to of a device/.test(what))
        assert.throws(() => call({ dtype: 'float33' as never }), sw.ArgumentError);
      else
        assert.throws(
          () => call({ dtype: 'float33' as never }),
          (e: Error) =>
            (e instanceof DtypeError || e instanceof DeviceError) && error.test(e.message),
        );
    });
  }

  it('are distinguished from names of devices by to', () => {
    assert.equal(x.to('cpu'), x);
    assert.equal(x.to('float16').dtype, sw.float16);
    assert.throws(
      () => x.to('gpu' as never),
      /to: expected a device such as 'cpu', 'cuda', 'cuda:1' or 'meta', or a dtype, one of float32, .*, got 'gpu'/,
    );
    assert.throws(() => x.to('cuda:x' as never), DeviceError);
    assert.throws(() => new nn.Linear(1, 1).to('gpu' as never), /or a dtype, one of float32/);
    assert.throws(() => new nn.Sequential().to({ dtype: 'float33' as never }), DtypeError);
  });

  it('are taken by autocast, setDefaultDtype, finfo, iinfo and promoteTypes', () => {
    assert.equal(
      amp.autocast(
        { deviceType: 'cpu', dtype: 'bfloat16' },
        () => sw.ones([1, 1]).matmul(sw.ones([1, 1])).dtype,
      ),
      sw.bfloat16,
    );
    assert.throws(
      () => amp.autocast({ deviceType: 'cpu', dtype: 'float64' }, () => 0),
      /expected dtype bfloat16 or float16, got float64/,
    );
    sw.setDefaultDtype('float64');
    try {
      assert.equal(sw.zeros([1]).dtype, sw.float64);
    } finally {
      sw.setDefaultDtype('float32');
    }
    assert.throws(
      () => sw.setDefaultDtype('float' as never),
      /setDefaultDtype: expected dtype to be one of float32/,
    );
    assert.equal(sw.finfo('float16').max, 65504);
    assert.equal(sw.iinfo('int8').max, 127);
    assert.equal(sw.promoteTypes('float16', sw.int64), sw.float16);
    assert.equal(sw.promoteTypes('uint8', 'int8'), sw.int16);
  });

  it(
    'are taken by factories of distributed tensors',
    withRanks(2, () => {
      const mesh = initDeviceMesh('cpu', [2]);
      for (const make of [dtensorZeros, dtensorOnes, dtensorRand])
        assert.equal(make([4], { mesh, dtype: 'float64' }).dtype, sw.float64);
    }),
  );
});
