/** Call forms of reductions, order statistics and functions along a dim. */
import {
  argmax,
  cat,
  chunk,
  clamp,
  isclose,
  max,
  nn,
  sort,
  split,
  stack,
  std,
  tensor,
  topk,
  triu,
  unique,
} from '../../lib/index.js';
import { type CallForms, f64, itGivesTheSame, x, y } from './call-forms.js';

const F = nn.functional;

const calls: CallForms = {
  'sum(1, True)': [
    '[[6],[9]]',
    () => x.sum(1, true),
    () => x.sum(1, { keepdim: true }),
    () => x.sum({ dim: 1, keepdim: true }),
  ],
  'max(1, True)': [
    '[[[3],[5]],[[0],[1]]]',
    () => x.max(1, true),
    () => x.max({ dim: 1, keepdim: true }),
    () => max(x, 1, { keepdim: true }),
  ],
  'max(other=y)': ['[[3,1,2],[2,5,4]]', () => x.max(y), () => max(x, y)],
  'argmax(1, True)': [
    '[[0],[1]]',
    () => x.argmax(1, true),
    () => argmax(x, { dim: 1, keepdim: true }),
  ],
  'std(0, False)': [
    '[1.5,2,1]',
    () => x.std(0, false),
    () => x.std({ dim: 0, unbiased: false }),
    () => std(x, 0, { correction: 0 }),
  ],
  'std(unbiased=False)': [
    '1.707825127659933',
    () => tensor([3, 1, 2, 0, 5, 4], f64).std(false),
    () => x.std({ unbiased: false }),
    () => x.std({ correction: 0 }),
  ],
  'cat(xs, dim=1)': [
    '[[3,1,2,1,1,1],[0,5,4,2,2,2]]',
    () => cat([x, y], 1),
    () => cat([x, y], { dim: 1 }),
  ],
  'stack(xs, dim=1)': [
    '[[[3,1,2],[1,1,1]],[[0,5,4],[2,2,2]]]',
    () => stack([x, y], 1),
    () => stack([x, y], { dim: 1 }),
  ],
  'split(2, dim=1)': [
    '[[[3,1],[0,5]],[[2],[4]]]',
    () => x.split(2, 1),
    () => split(x, 2, { dim: 1 }),
    () => x.split({ splitSize: 2, dim: 1 }),
  ],
  'chunk(2, dim=1)': [
    '[[[3,1],[0,5]],[[2],[4]]]',
    () => x.chunk(2, 1),
    () => chunk(x, 2, { dim: 1 }),
  ],
  'softmax(dim=-1)': [
    '[0.5,0.5]',
    () => tensor([1, 1]).softmax(-1),
    () => tensor([1, 1]).softmax({ dim: -1 }),
    () => F.softmax(tensor([1, 1]), { dim: 0 }),
  ],
  'sort(-1, True)': [
    '[[[3,2,1],[5,4,0]],[[0,2,1],[1,2,0]]]',
    () => x.sort(-1, true),
    () => sort(x, { descending: true }),
    () => x.sort({ dim: 1, descending: true, stable: true }),
  ],
  'argsort(dim=1, descending=True)': [
    '[[0,2,1],[1,2,0]]',
    () => x.argsort(1, true),
    () => x.argsort({ dim: 1, descending: true }),
  ],
  'topk(2, -1, False)': [
    '[[[1,2],[0,4]],[[1,2],[0,2]]]',
    () => x.topk(2, -1, false),
    () => topk(x, 2, { largest: false }),
    () => x.topk({ k: 2, largest: false, sorted: true }),
  ],
  'kthvalue(2, 1, True)': [
    '[[[2],[4]],[[2],[2]]]',
    () => x.kthvalue(2, 1, true),
    () => x.kthvalue(2, { dim: 1, keepdim: true }),
  ],
  'median(1, True)': [
    '[[[2],[4]],[[2],[2]]]',
    () => x.median(1, true),
    () => x.median({ dim: 1, keepdim: true }),
  ],
  'quantile(0.5, 1, True)': [
    '[[2],[4]]',
    () => x.quantile(0.5, 1, true),
    () => x.quantile(0.5, { dim: 1, keepdim: true }),
  ],
  'norm(1, 1, True)': [
    '[[6],[9]]',
    () => x.norm(1, 1, true),
    () => x.norm(1, { dim: 1, keepdim: true }),
    () => x.norm({ p: 1, dim: 1, keepdim: true }),
  ],
  'nansum(1, True)': [
    '[[6],[9]]',
    () => x.nansum(1, true),
    () => x.nansum({ dim: 1, keepdim: true }),
  ],
  'aminmax(dim=1)': ['[[1,0],[3,5]]', () => x.aminmax({ dim: 1 })],
  'diff(1, 0)': ['[[-3,4,2]]', () => x.diff(1, 0), () => x.diff({ dim: 0 })],
  'cumsum(dim=1)': [
    '[[3,4,6],[0,5,9]]',
    () => x.cumsum(1),
    () => x.cumsum({ dim: 1 }),
    () => x.clone().cumsum_({ dim: 1 }),
  ],
  'clamp(1, 3)': [
    '[[3,1,2],[1,3,3]]',
    () => x.clamp(1, 3),
    () => clamp(x, { min: 1, max: 3 }),
    () => x.clone().clamp_(1, 3),
    () => x.clip(1, { max: 3 }),
  ],
  'clamp(max=1)': ['[[1,1,1],[0,1,1]]', () => x.clamp({ max: 1 }), () => x.clamp(null, 1)],
  'triu(1)': [
    '[[0,1,2],[0,0,4]]',
    () => x.triu(1),
    () => triu(x, { diagonal: 1 }),
    () => x.clone().triu_(1),
  ],
  'tril(-1)': [
    '[[0,0,0],[0,0,0]]',
    () => x.tril(-1),
    () => x.tril({ diagonal: -1 }),
    () => x.clone().tril_(-1),
    () => x.clone().tril_({ diagonal: -2 }),
  ],
  'diagonal(1)': [
    '[1,4]',
    () => x.diagonal(1),
    () => x.diagonal({ offset: 1 }),
    () => x.diagonal(1, 0, 1),
  ],
  'isclose(a, b, 1e-1)': [
    '[true,false]',
    () => isclose(tensor([1, 1]), tensor([1.05, 1.5]), 0.1),
    () => tensor([1, 1]).isclose(tensor([1.05, 1.5]), { rtol: 0.1 }),
  ],
  'unique(True, True)': [
    '[[1,2],[0,1,0]]',
    () => tensor([1, 2, 1]).unique(true, true),
    () => unique(tensor([1, 2, 1]), { sorted: true, returnInverse: true }),
  ],
  'histc(2, 0, 4)': [
    '[1,1]',
    () => tensor([1, 3]).histc(2, 0, 4),
    () => tensor([1, 3]).histc(2, { min: 0, max: 4 }),
  ],
};

describe("PyTorch's call form of functions along a dim", () => {
  itGivesTheSame(calls);
});
