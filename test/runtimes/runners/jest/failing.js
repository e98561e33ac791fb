const { ones, tensor } = require('shardwise');
const { withRanks } = require('shardwise/testing');
const { fails } = require('../program.cjs');

test('fails on a rank', withRanks(2, fails));
test('differs', () => expect({ a: [ones([2])] }).toEqual({ a: [tensor([1, 3])] }));
test('differs in dims', () => expect(ones([])).toEqual(ones([1, 2])));
