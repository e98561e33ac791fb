/** The command that goes on with a run is the one that was typed. */
import assert from 'node:assert/strict';
import path from 'node:path';
import {
  commandLine,
  ownStart,
} from '../../../../lib/parallel/distributed-checkpoint/runs/command.js';

const program = path.resolve('examples/train-gpt.ts');
const startOf = (
  args: readonly string[],
  {
    execArgv = [],
    env = {},
    file = program,
  }: Partial<Record<'execArgv', string[]>> & {
    env?: Record<string, string>;
    file?: string;
  } = {},
) => ({ argv: ['/usr/bin/node', file, ...args], execArgv, env });
const more = ['--resume'];

describe('the command that goes on with a run', () => {
  it('has the options of the one that started it, those that change, and more arguments', () => {
    const args = ['--ranks', '4', '--steps', '20', '--lr=0.1', '--out', 'my runs/a'];
    const start = startOf(args, { execArgv: ['--import', 'tsx'] });
    const command = 'node --import tsx examples/train-gpt.ts --ranks 4';
    assert.equal(
      commandLine(start, more),
      `${command} --steps 20 --lr=0.1 --out 'my runs/a' --resume`,
    );
    assert.equal(
      commandLine(start, more, { '--steps': '40', '--lr': '0.2' }),
      `${command} --out 'my runs/a' --resume --steps 40 --lr 0.2`,
    );
  });

  it('has an argument once that it has already', () => {
    assert.equal(
      commandLine(startOf(['--resume', '--steps=20']), more, { '--steps': '40' }),
      'node examples/train-gpt.ts --resume --steps 40',
    );
  });

  it('is one of npm where a script is the program, without what the script gives', () => {
    const scriptOf = (event: string, script: string) => ({
      env: { npm_lifecycle_event: event, npm_lifecycle_script: script },
    });
    const start = startOf(
      ['--batch', '4'],
      scriptOf('start', 'node --import tsx examples/train-gpt.ts'),
    );
    assert.equal(commandLine(start, more), 'npm start -- --batch 4 --resume');
    const fixed = scriptOf('train', 'FAST=1 node examples/train-gpt.ts --batch 4');
    assert.equal(
      commandLine(startOf(['--batch', '4', '--steps', '9'], fixed), more),
      'npm run train -- --steps 9 --resume',
    );
    const another = scriptOf('test', 'node scripts/test.mjs');
    assert.equal(commandLine(startOf([], another), []), 'node examples/train-gpt.ts');
  });

  it('is npx for tsx and for commands of packages', () => {
    const execArgv = [
      '--require',
      '/home/me/node_modules/tsx/dist/preflight.cjs',
      '--import',
      'file:///home/me/node_modules/tsx/dist/loader.mjs',
    ];
    assert.equal(commandLine(startOf(['a'], { execArgv }), []), 'npx tsx examples/train-gpt.ts a');
    assert.equal(
      commandLine(startOf(['a'], { execArgv: [...execArgv, '--expose-gc'] }), []),
      'npx tsx --expose-gc examples/train-gpt.ts a',
    );
    const file = '/home/me/node_modules/.bin/shardwise';
    assert.equal(
      commandLine(startOf(['run', 'a.js'], { file }), more),
      'npx shardwise run a.js --resume',
    );
  });

  it('is that of the launcher for its ranks', () => {
    const launcher = startOf(['run', 'a.js'], { file: '/home/me/node_modules/.bin/shardwise' });
    const rank = startOf([], { env: { SHARDWISE_COMMAND: JSON.stringify(launcher) } });
    assert.equal(commandLine(ownStart(rank), more), 'npx shardwise run a.js --resume');
  });
});
