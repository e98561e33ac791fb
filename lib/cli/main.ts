#!/usr/bin/env node
/** The command `shardwise`. */
import { createRequire } from 'node:module';
import { Command } from 'commander';
import { addExamples } from './examples.js';
import { addRun } from './run.js';
import { addTune } from './tune.js';
import { wholeNumber } from './whole-number.js';

const { version } = createRequire(import.meta.url)('../../package.json') as { version: string };

const program = new Command('shardwise')
  .description('Distributed tensors and training for Node.js.')
  .version(version)
  .enablePositionalOptions();

program
  .command('doctor')
  .alias('info')
  .description('report devices and libraries, and what each missing library disables')
  .option('--json', 'print JSON')
  .option('--gpus <n>', 'exit with 2 unless so many GPUs can be used', wholeNumber(0, 64), 0)
  .addHelpText(
    'after',
    '\nExit codes: 0; 1 if the native part does not load; 2 if there are fewer GPUs than --gpus.',
  )
  .action(async (options: { json?: boolean; gpus: number }) => {
    const { runDoctor } = await import('./doctor.js');
    process.exitCode = runDoctor(version, options.json === true, options.gpus);
  });

addRun(program);
addTune(program);
addExamples(program);

void program.parseAsync(); // a promise that is rejected ends the process
