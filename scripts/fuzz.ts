/**
 * Fuzzing: `npm run fuzz`. Targets run under sanitizers, campaigns against the library as it is
 * built.
 *
 *   npm run fuzz                                       all targets, a minute together
 *   npm run fuzz -- --seconds 600 --seed 7             longer, other cases
 *   npm run fuzz -- checkpoint --seconds 120           one target, as with --target
 *   npm run fuzz -- --target ops --seed 7 --case 1234  one case again, each step printed
 *   npm run fuzz -- --plain                            with the addon as it is built, without sanitizers
 *   npm run fuzz -- compile --plain --seconds 600      compiled random programs beside eager ones
 *   npm run fuzz -- throws --seconds 600               ten million calls that fail, where JavaScript is called from outside, or as many as fit
 *   npm run fuzz -- store --seconds 600 --seed 7       hostile clients against a TCPStore on 127.0.0.1
 *   npm run fuzz -- faults --seconds 600 --seed 7      signals for ranks at random moments
 *   npm run fuzz -- faults --seed 7 --trial 12         one of them again
 *   npm run fuzz -- saves                              each call of the system fails in each kind of save
 *   npm run fuzz -- memory                             allocations fail in each kind of training step
 *   npm run fuzz -- races                              the self-test of native/comm under ThreadSanitizer
 *   npm run fuzz -- --peer torch --seconds 600         random programs beside PyTorch
 *   npm run fuzz -- --peer torch --seed 7 --case 12    one of them again
 */
import { availableParallelism } from 'node:os';
import { Command, Option } from 'commander';
import {
  attackStore,
  besidePeer,
  failAllocations,
  failCalls,
  failSaves,
  type PeerFiles,
  signalRanks,
} from './fuzz/campaigns.js';
import { findRaces } from './fuzz/races.js';
import { fuzzTargets, type TargetOptions, targets } from './fuzz/targets.js';

interface Options extends TargetOptions, PeerFiles {
  peer?: 'torch';
  python: string;
  programs?: number;
  record?: string;
}

const someSeed = Date.now() % 1_000_000;

const program = new Command('fuzz').enablePositionalOptions();
program
  .argument('[target]', `one of ${targets.join(', ')}; all`)
  .option('--seconds <n>', 'time of all targets together, without the build', Number, 60)
  .option('--seed <n>', 'which cases; printed', Number, someSeed)
  .option('--target <name>', `one of ${targets.join(', ')}`)
  .option('--case <n>', 'only this one, each step printed', Number)
  .option('--plain', 'the addon as it is built, without sanitizers')
  .option('--jobs <n>', 'compilers at a time', Number, availableParallelism())
  .addOption(
    new Option('--peer <name>', 'random programs beside this peer instead').choices(['torch']),
  )
  .option('--python <path>', 'with --peer: a Python that can import torch', '/usr/bin/python3')
  .option('--programs <n>', 'with --peer: so many instead of a time', Number)
  .option('--record <file>', 'with --peer: writes what both answer alike')
  .option('--write <file>', 'with --peer: only writes the programs, for a peer on another machine')
  .option('--read <file>', 'with --peer: programs that were written before, with --answers')
  .option('--answers <file>', "with --peer: that peer's answers")
  .action((target: string | undefined) => {
    const options = { ...program.opts<Options>(), ...(target === undefined ? {} : { target }) };
    return options.peer === undefined ? fuzzTargets(options) : besidePeer(options);
  });
program.command('throws').option('--seconds <n>', 'at most', Number, 3600).action(failCalls);
program
  .command('store')
  .option('--seconds <n>', 'about how long', Number, 60)
  .option('--seed <n>', 'which attacks; printed', Number, someSeed)
  .action(attackStore);
program
  .command('faults')
  .option('--seconds <n>', 'about how long', Number, 60)
  .option('--seed <n>', 'which; printed', Number, someSeed)
  .option('--trial <n>', 'only this one', Number)
  .action(signalRanks);
program.command('saves').action(failSaves);
program.command('memory').action(failAllocations);
program
  .command('races')
  .option('--jobs <n>', 'compilers at a time', Number, availableParallelism())
  .action(findRaces);
await program.parseAsync();
