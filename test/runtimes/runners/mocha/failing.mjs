import { withRanks } from 'shardwise/testing';
import { fails } from '../program.mjs';

it('fails on a rank', withRanks(2, fails));
it('fails on a process', withRanks(2, fails, { mode: 'process' }));
