/** The command that the examples print at the end of a run. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { continueCommand } from '../../examples/common/continue-command.js';

const file = path.resolve('examples/train-gpt.ts');
const execArgv = ['--import', 'tsx'];

describe('the command that goes on with a run', () => {
  it('has all options of the one that started it, and other steps', () => {
    const options = [
      '--ranks',
      '4',
      '--parallel',
      'fsdp+tp',
      '--steps',
      '20',
      '--out',
      'my runs/a',
    ];
    const argv = ['/usr/bin/node', file, ...options];
    assert.equal(
      continueCommand(40, { argv, execArgv, env: {} }),
      'node --import tsx examples/train-gpt.ts --ranks 4 --parallel fsdp+tp ' +
        "--out 'my runs/a' --resume --steps 40",
    );
  });

  it('is one of npm where the program was started so, and has --resume once', () => {
    const argv = ['/usr/bin/node', file, '--resume', '--steps=20', '--batch=4'];
    assert.equal(
      continueCommand(40, { argv, execArgv, env: { npm_lifecycle_event: 'start' } }),
      'npm start -- --batch=4 --resume --steps 40',
    );
  });

  it('is that of the launcher, for a rank of one', () => {
    const words = ['node', 'shardwise', 'run', '--nproc', '2', 'train.ts', '--steps', '3'];
    assert.equal(
      continueCommand(6, {
        argv: ['/usr/bin/node', file, '--steps', '3'],
        execArgv,
        env: { SHARDWISE_COMMAND: JSON.stringify(words) },
      }),
      'node shardwise run --nproc 2 train.ts --resume --steps 6',
    );
  });

  it('keeps the folder of the Llama and its LoRA options', () => {
    const argv = [
      '/usr/bin/node',
      path.resolve('examples/finetune-llama.ts'),
      'llama',
      '--lora',
      '8',
    ];
    assert.equal(
      continueCommand(200, { argv, execArgv, env: {} }),
      'node --import tsx examples/finetune-llama.ts llama --lora 8 --resume --steps 200',
    );
  });
});
