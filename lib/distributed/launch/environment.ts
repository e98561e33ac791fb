/**
 * Reads this process's rank from the variables that launchers set: torchrun (`npx shardwise run`
 * sets the same), Slurm, Open MPI and PMI.
 */
import { createHash } from 'node:crypto';
import { ArgumentError, DistributedError } from '../../core/errors.js';

/** @internal */
export interface RankPlace {
  readonly rank: number;
  readonly worldSize: number;
  /** Rank among those of its machine; null if unknown: the rendezvous then counts it. */
  readonly localRank: number | null;
  /** Address of the store; null if unknown. */
  readonly masterAddr: string | null;
  readonly masterPort: number | null;
  /** The launchers that set these variables, for errors. */
  readonly setBy: string;
}

type Variables = Readonly<Record<string, string | undefined>>;

const OP = 'initProcessGroup';
const HIGHEST_PORT = 65_535;
/** torchrun's default. */
const DEFAULT_PORT = 29_500;

/**
 * Rank, world size and store address of the environment; null without these variables. @throws
 * ArgumentError for a value that is not a number, DistributedError if variables are missing
 */
export function readRankEnvironment(env: Variables = process.env): RankPlace | null {
  if (given(env, 'RANK') || given(env, 'WORLD_SIZE')) return torchrunPlace(env);
  // A batch script also has SLURM_PROCID but is not a task of a step.
  if (
    given(env, 'SLURM_PROCID') &&
    (given(env, 'SLURM_STEP_ID') || given(env, 'SLURM_STEP_NODELIST'))
  )
    return slurmPlace(env);
  if (given(env, 'OMPI_COMM_WORLD_RANK'))
    return mpiPlace(
      env,
      'Open MPI',
      'OMPI_COMM_WORLD_RANK',
      'OMPI_COMM_WORLD_SIZE',
      'OMPI_COMM_WORLD_LOCAL_RANK',
      'OMPI_COMM_WORLD_LOCAL_SIZE',
    );
  if (given(env, 'PMI_RANK'))
    return mpiPlace(env, 'MPI (PMI)', 'PMI_RANK', 'PMI_SIZE', 'MPI_LOCALRANKID', 'MPI_LOCALNRANKS');
  return null;
}

/** The store's address in MASTER_ADDR and MASTER_PORT. */
export function readMaster(env: Variables = process.env): {
  masterAddr: string | null;
  masterPort: number | null;
} {
  const port = wholeOf(env, 'MASTER_PORT');
  if (port !== null && (port < 1 || port > HIGHEST_PORT))
    throw badVariable('MASTER_PORT', `a port from 1 to ${HIGHEST_PORT}`, env['MASTER_PORT']);
  // torchrun's own store, with another protocol, uses that port: this library uses the next.
  const taken = env['TORCHELASTIC_USE_AGENT_STORE'] === 'True';
  return {
    masterAddr: given(env, 'MASTER_ADDR') ? (env['MASTER_ADDR'] as string) : null,
    masterPort: port === null || !taken ? port : port === HIGHEST_PORT ? port - 1 : port + 1,
  };
}

function torchrunPlace(env: Variables): RankPlace {
  const setBy = 'torchrun and `npx shardwise run`';
  const [rank, worldSize] = [wholeOf(env, 'RANK'), wholeOf(env, 'WORLD_SIZE')];
  if (rank === null || worldSize === null)
    throw missing([rank === null ? 'RANK' : 'WORLD_SIZE'], setBy);
  return { rank, worldSize, localRank: wholeOf(env, 'LOCAL_RANK'), ...readMaster(env), setBy };
}

/** @see Slurm `srun`, "output environment variables" */
function slurmPlace(env: Variables): RankPlace {
  const setBy = 'srun';
  const [rank, worldSize] = [
    wholeOf(env, 'SLURM_PROCID') as number,
    wholeOf(env, 'SLURM_STEP_NUM_TASKS') ?? wholeOf(env, 'SLURM_NTASKS'),
  ];
  if (worldSize === null) throw missing(['SLURM_NTASKS'], setBy);
  const nodes = env['SLURM_STEP_NODELIST'] ?? env['SLURM_JOB_NODELIST'] ?? '';
  const first = firstHost(nodes);
  const { masterAddr, masterPort } = readMaster(env);
  // As JAX does: a port that all tasks of the step can compute and other jobs rarely use.
  const port =
    61_440 + (((wholeOf(env, 'SLURM_JOB_ID') ?? 0) + (wholeOf(env, 'SLURM_STEP_ID') ?? 0)) % 4096);
  return {
    rank,
    worldSize,
    localRank: wholeOf(env, 'SLURM_LOCALID'),
    masterAddr: masterAddr ?? (nodes === '' || first === nodes ? '127.0.0.1' : first),
    masterPort: masterPort ?? port,
    setBy,
  };
}

function mpiPlace(
  env: Variables,
  setBy: string,
  rankName: string,
  sizeName: string,
  localRankName: string,
  localSizeName: string,
): RankPlace {
  const worldSize = wholeOf(env, sizeName);
  if (worldSize === null) throw missing([sizeName], setBy);
  const { masterAddr, masterPort } = readMaster(env);
  const together = wholeOf(env, localSizeName) === worldSize;
  const job = env['PMIX_NAMESPACE'];
  const port =
    job === undefined
      ? DEFAULT_PORT
      : 61_440 + (createHash('sha256').update(job).digest().readUInt16LE() % 4096);
  return {
    rank: wholeOf(env, rankName) as number,
    worldSize,
    localRank: wholeOf(env, localRankName),
    masterAddr: masterAddr ?? (together ? '127.0.0.1' : null),
    masterPort: masterPort ?? (together ? port : null),
    setBy,
  };
}

/** The first host of a list of Slurm such as `gpu[07-09,12],login`. */
export function firstHost(list: string): string {
  const [, name, range, rest] = /^([^,[]*)(?:\[([^\],-]*)[^\]]*\]([^,]*))?/.exec(
    list,
  ) as RegExpExecArray;
  return `${name}${range ?? ''}${rest ?? ''}`;
}

function given(env: Variables, name: string): boolean {
  return env[name] !== undefined && env[name] !== '';
}

function wholeOf(env: Variables, name: string): number | null {
  if (!given(env, name)) return null;
  const text = env[name] as string;
  if (!/^\d{1,9}$/.test(text)) throw badVariable(name, 'a whole number', text);
  return Number(text);
}

function badVariable(name: string, expected: string, value: string | undefined): ArgumentError {
  return new ArgumentError(
    `${OP}: expected the environment variable ${name} to be ${expected}, got '${value}'`,
    { op: OP, argument: name, expected, value },
  );
}

/** The error for missing variables of a rank whose environment has others. */
export function missing(names: readonly string[], setBy: string): DistributedError {
  return new DistributedError(
    `${OP}: the environment has no ${names.join(' and no ')}, although this is one of several ` +
      `ranks. ${setBy} would set ${names.length === 1 ? 'it' : 'them'}; by hand, set RANK, ` +
      'WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process.',
    { op: OP, missing: names },
  );
}

/** @throws ArgumentError unless the rank belongs to a world of this size */
export function checkPlace(rank: number, worldSize: number): void {
  const bad = (value: number, from: number): boolean =>
    !Number.isSafeInteger(value) || value < from;
  if (bad(worldSize, 1))
    throw new ArgumentError(
      `${OP}: expected worldSize to be a whole number from 1, got ${worldSize}`,
      { op: OP, argument: 'worldSize', value: worldSize },
    );
  if (bad(rank, 0) || rank >= worldSize) {
    throw new ArgumentError(
      `${OP}: expected a rank from 0 to ${worldSize - 1}, because the world has ${worldSize} ` +
        `${worldSize === 1 ? 'rank' : 'ranks'}, got ${rank}`,
      {
        op: OP,
        argument: 'rank',
        value: rank,
        worldSize,
      },
    );
  }
}
