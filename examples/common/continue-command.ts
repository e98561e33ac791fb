/** The command that goes on with a run, to be printed at its end. */
import path from 'node:path';

/** How a program was started. */
export interface Start {
  readonly argv: readonly string[];
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * The command that started this program, with `--resume` and another number of steps. Options that
 * ranks, folders and devices depend on stay.
 */
export function continueCommand(steps: number, start: Start = process): string {
  const { argv, env } = start;
  const launcher = env['SHARDWISE_COMMAND'];
  const words =
    launcher === undefined
      ? [...programOf(start), ...argv.slice(2)]
      : (JSON.parse(launcher) as string[]);
  const kept = words.filter(
    (word, i) =>
      word !== '--resume' &&
      word !== '--steps' &&
      !word.startsWith('--steps=') &&
      words[i - 1] !== '--steps',
  );
  return [...kept, '--resume', '--steps', String(steps)].map(quoted).join(' ');
}

function programOf({ argv, execArgv, env }: Start): string[] {
  if (env['npm_lifecycle_event'] === 'start') return ['npm', 'start', '--'];
  const file = path.relative(process.cwd(), argv[1] as string);
  return ['node', ...execArgv, file.startsWith('..') ? (argv[1] as string) : file];
}

/** A word of a command as a shell needs it. */
const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
