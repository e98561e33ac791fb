/** The command that started this program, as a person would type it again. */
import path from 'node:path';

/** How a program was started. */
export interface Start {
  /** The path of Node, that of the program, and its arguments. */
  readonly argv: readonly string[];
  /** Arguments of Node. */
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** How this program was started, or the launcher that it is a rank of. */
export function ownStart({ env, argv, execArgv }: Start = process): Start {
  const launcher = env['SHARDWISE_COMMAND'];
  if (launcher === undefined) return { env, argv, execArgv };
  return { env, ...(JSON.parse(launcher) as Pick<Start, 'argv' | 'execArgv'>) };
}

/**
 * The command, for a shell. `more` are arguments that it gets unless it has them; `options` are
 * those that get other values.
 */
export function commandLine(
  start: Start,
  more: readonly string[],
  options: Readonly<Record<string, string>> = {},
): string {
  const [program, given] = typedWords(start);
  const names = Object.keys(options);
  const kept = given.filter(
    (word, i) =>
      !names.some((name) => word === name || word.startsWith(`${name}=`)) &&
      !names.includes(given[i - 1] ?? ''),
  );
  const missing = more.filter((argument) => !kept.includes(argument));
  const words = [...program, ...kept, ...missing, ...Object.entries(options).flat()];
  return words.map(quoted).join(' ');
}

/** What starts the program, and the arguments that it got. */
function typedWords({ argv, execArgv, env }: Start): [program: string[], given: string[]] {
  const [, program = '', ...given] = argv;
  const file = shortest(program);
  const script = scriptWords(env, program);
  if (script !== null) {
    const event = env['npm_lifecycle_event'] as string;
    const run = ['start', 'test'].includes(event) ? ['npm', event] : ['npm', 'run', event];
    const fixed = script.slice(1 + script.findIndex((word) => names(word, program)));
    const own = fixed.every((word, i) => word === given[i]) ? given.slice(fixed.length) : given;
    return [[...run, '--'], own];
  }
  if (path.basename(path.dirname(program)) === '.bin')
    return [['npx', path.basename(program)], given];
  const others = execArgv.filter((word, i) => !isOfTsx(word) && !isOfTsx(execArgv[i + 1] ?? ''));
  const runner = others.length < execArgv.length ? ['npx', 'tsx'] : ['node'];
  return [[...runner, ...others, file], given];
}

/** The words of the npm script that runs the program itself; null if none does. */
function scriptWords(env: Start['env'], program: string): readonly string[] | null {
  const words = env['npm_lifecycle_script']?.split(/\s+/) ?? [];
  return words.some((word) => names(word, program)) ? words : null;
}

/** Whether a word of a script names the program: by its path, or as a command of a package. */
const names = (word: string, program: string): boolean =>
  path.resolve(word) === program || (word !== '' && program.endsWith(`/.bin/${word}`));

/** What the command `tsx` adds to Node's arguments; the name alone was typed. */
const isOfTsx = (word: string): boolean => /[/\\]tsx[/\\]dist[/\\]/.test(word);

/** The path from here, for a file below. */
function shortest(file: string): string {
  const relative = path.relative(process.cwd(), file);
  return relative.startsWith('..') || path.isAbsolute(relative) ? file : relative;
}

/** A word as a shell needs it. */
const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
