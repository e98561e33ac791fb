import { ones, tensor } from 'shardwise';
import { withRanks } from 'shardwise/testing';
import { expect, test } from 'vitest';
import { fails } from '../../program.mjs';

test('fails on a rank', withRanks(2, fails));
test('differs', () => expect({ a: [ones([2])] }).toEqual({ a: [tensor([1, 3])] }));
