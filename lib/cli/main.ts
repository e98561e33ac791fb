#!/usr/bin/env node
/** The command `shardwise`. */
import { createRequire } from 'node:module';
import { Command } from 'commander';
import { runDoctor } from './doctor.js';

const { version } = createRequire(import.meta.url)('../../package.json') as { version: string };

const program = new Command('shardwise').description('Distributed tensors and training for Node.js.').version(version);

program
  .command('doctor')
  .alias('info')
  .description('say which devices and libraries are found, and what each missing one turns off')
  .option('--json', 'as JSON')
  .action((options: { json?: boolean }) => {
    process.exitCode = runDoctor(version, options.json === true);
  });

program.parse();
