/** `initProcessGroup`: rank and world size from environment and options, and the rendezvous. */
import assert from 'node:assert/strict';
import { chooseEngines, parseBackend } from '../../../lib/distributed/engines/select.js';
import { firstHost, readRankEnvironment } from '../../../lib/distributed/launch/environment.js';
import { rendezvous } from '../../../lib/distributed/launch/rendezvous.js';
import {
  allReduce,
  DistributedError,
  destroyProcessGroup,
  getRank,
  getWorldSize,
  HashStore,
  type InitOptions,
  initProcessGroup,
  TCPStore,
  TimeoutError,
} from '../../../lib/distributed.js';
import { ArgumentError, device, full } from '../../../lib/index.js';

const torchrun = {
  RANK: '1',
  LOCAL_RANK: '0',
  WORLD_SIZE: '4',
  LOCAL_WORLD_SIZE: '2',
  MASTER_ADDR: 'head',
  MASTER_PORT: '2345',
};

describe('the rank environment', () => {
  it("is read from torchrun's variables", () => {
    assert.deepEqual(readRankEnvironment(torchrun), {
      rank: 1,
      worldSize: 4,
      localRank: 0,
      masterAddr: 'head',
      masterPort: 2345,
      setBy: 'torchrun and `npx shardwise run`',
    });
    assert.equal(
      readRankEnvironment({ ...torchrun, TORCHELASTIC_USE_AGENT_STORE: 'True' })?.masterPort,
      2346,
    );
    assert.equal(readRankEnvironment({ MASTER_ADDR: 'head' }), null);
    assert.equal(readRankEnvironment({}), null);
  });

  it("is read from Slurm's variables in a step, with the first node of its list", () => {
    const slurm = {
      SLURM_PROCID: '5',
      SLURM_NTASKS: '8',
      SLURM_LOCALID: '1',
      SLURM_STEP_ID: '2',
      SLURM_JOB_ID: '4097',
      SLURM_STEP_NODELIST: 'gpu[07-09,12],login',
    };
    assert.deepEqual(readRankEnvironment(slurm), {
      rank: 5,
      worldSize: 8,
      localRank: 1,
      masterAddr: 'gpu07',
      masterPort: 61_443,
      setBy: 'srun',
    });
    assert.equal(
      readRankEnvironment({ ...slurm, SLURM_STEP_NODELIST: 'gpu07' })?.masterAddr,
      '127.0.0.1',
    );
    // a batch script
    assert.equal(readRankEnvironment({ SLURM_PROCID: '0', SLURM_NTASKS: '8' }), null);
    assert.deepEqual(['a,b', 'a[3]', 'a[01-03]b,c', 'a'].map(firstHost), ['a', 'a3', 'a01b', 'a']);
  });

  it("is read from Open MPI's or PMI's variables, with a store address only on one machine", () => {
    const mpi = {
      OMPI_COMM_WORLD_RANK: '2',
      OMPI_COMM_WORLD_SIZE: '4',
      OMPI_COMM_WORLD_LOCAL_RANK: '2',
      OMPI_COMM_WORLD_LOCAL_SIZE: '4',
    };
    assert.deepEqual(readRankEnvironment(mpi), {
      rank: 2,
      worldSize: 4,
      localRank: 2,
      masterAddr: '127.0.0.1',
      masterPort: 29_500,
      setBy: 'Open MPI',
    });
    assert.notEqual(
      readRankEnvironment({ ...mpi, PMIX_NAMESPACE: 'job-1' })?.masterPort,
      readRankEnvironment({ ...mpi, PMIX_NAMESPACE: 'job-2' })?.masterPort,
    );
    assert.equal(
      readRankEnvironment({ ...mpi, OMPI_COMM_WORLD_LOCAL_SIZE: '2' })?.masterAddr,
      null,
    );
    assert.deepEqual(
      readRankEnvironment({ PMI_RANK: '0', PMI_SIZE: '2', MASTER_ADDR: 'head', MASTER_PORT: '7' }),
      {
        rank: 0,
        worldSize: 2,
        localRank: null,
        masterAddr: 'head',
        masterPort: 7,
        setBy: 'MPI (PMI)',
      },
    );
  });

  it('is refused if a value is not a number or variables are missing', () => {
    assert.throws(
      () => readRankEnvironment({ ...torchrun, RANK: 'one' }),
      /RANK to be a whole number, got 'one'/,
    );
    assert.throws(
      () => readRankEnvironment({ ...torchrun, MASTER_PORT: '70000' }),
      /MASTER_PORT to be a port/,
    );
    assert.throws(
      () => readRankEnvironment({ RANK: '0' }),
      /the environment has no WORLD_SIZE.*torchrun and `npx shardwise run` would set it/,
    );
    assert.throws(
      () => readRankEnvironment({ OMPI_COMM_WORLD_RANK: '0' }),
      /no OMPI_COMM_WORLD_SIZE.*Open MPI would set it/,
    );
  });
});

describe('initProcessGroup', () => {
  afterEach(() => destroyProcessGroup());

  it('creates a world of one rank by default, and only once', async () => {
    await initProcessGroup();
    assert.deepEqual([getRank(), getWorldSize()], [0, 1]);
    const t = full([2], 3);
    allReduce(t);
    assert.deepEqual(t.tolist(), [3, 3]);
    await assert.rejects(initProcessGroup(), /this process is rank 0 already/);
    destroyProcessGroup();
    await Promise.all([initProcessGroup('cpu:shm'), assert.rejects(initProcessGroup(), /already/)]);
  });

  it('selects the GPU that `cuda` means by deviceId', async () => {
    await initProcessGroup(undefined, { deviceId: 'cuda:3' });
    assert.equal(device('cuda').index, 3);
    assert.equal(device('cuda:1').index, 1);
    destroyProcessGroup();
    assert.equal(device('cuda').index, 0);
    await assert.rejects(
      initProcessGroup(undefined, { deviceId: 'cpu' }),
      /expected deviceId to be a GPU/,
    );
  });

  it('refuses invalid ranks, world sizes and options', async () => {
    const bad: InitOptions[] = [
      { rank: 2, worldSize: 2 },
      { rank: -1, worldSize: 2 },
      { rank: 0, worldSize: 0 },
      { rank: 0.5, worldSize: 2 },
      { rank: 1 },
      { timeoutMs: 0 },
      { timeoutMs: Number.POSITIVE_INFINITY },
      { store: {} as never },
      { initMethod: 'http://host:80' },
      { initMethod: 'env://', store: new HashStore() },
      { deviceId: -1 },
      { port: 3 } as never,
    ];
    for (const options of bad)
      await assert.rejects(
        initProcessGroup(undefined, options),
        ArgumentError,
        JSON.stringify(options),
      );
    await assert.rejects(
      initProcessGroup(undefined, { rank: 0, worldSize: 2 }),
      /the environment has no MASTER_ADDR and no MASTER_PORT/,
    );
    await assert.rejects(initProcessGroup('mpi'), /expected backend to be 'shm', 'nccl'/);
    await assert.rejects(initProcessGroup('cpu:nccl'), /'nccl' supports cuda tensors, not cpu/);
    await assert.rejects(initProcessGroup('cuda:gloo'), /'gloo' supports cpu tensors, not cuda/);
  });

  it('names the ranks that did not come', async () => {
    const started = Date.now();
    await assert.rejects(
      initProcessGroup(undefined, { store: new HashStore(), rank: 1, worldSize: 4, timeoutMs: 60 }),
      (error: TimeoutError) =>
        error instanceof TimeoutError &&
        /rank 0, 2, 3 of 4 did not come within 60 ms \(this is rank 1\)/.test(error.message),
    );
    const closed = await new TCPStore('127.0.0.1', 0, { isServer: true }).ready();
    await closed.close();
    await assert.rejects(
      initProcessGroup(undefined, {
        initMethod: `tcp://127.0.0.1:${closed.port}`,
        rank: 1,
        worldSize: 2,
        timeoutMs: 60,
      }),
      /rank 1 of 2 found no store at 127\.0\.0\.1:\d+ within 60 ms\. Rank 0 serves it/,
    );
    assert.ok(Date.now() - started < 5_000);
  });

  it('ends at the timeout if no other rank has come to read the error', async () => {
    const free = await new TCPStore('127.0.0.1', 0, { isServer: true }).ready();
    await free.close();
    const started = Date.now();
    await assert.rejects(
      initProcessGroup('shm', {
        initMethod: `tcp://127.0.0.1:${free.port}`,
        rank: 0,
        worldSize: 2,
        timeoutMs: 300,
      }),
      /rank 1 of 2 did not come within 300 ms \(this is rank 0\)\. Was it started, with the same initMethod tcp:/,
    );
    assert.ok(Date.now() - started < 900, 'nobody is waited for'); // last words take a second
  });

  it('accepts options alone', async () => {
    await initProcessGroup({ timeoutMs: 4_000, deviceId: 2 });
    assert.deepEqual([getWorldSize(), device('cuda').index], [1, 2]);
    destroyProcessGroup();
    await assert.rejects(
      initProcessGroup({ backend: 'shm' } as never),
      /there is no option "backend"; options are store/,
    );
    for (const other of [['shm'], new HashStore(), 3])
      await assert.rejects(initProcessGroup(other as never), /expected backend to be 'shm'/);
    await assert.rejects(
      initProcessGroup({ timeoutMs: 4_000 } as never, {}),
      /expected backend to be 'shm'.*got an object/,
    );
  });
});

describe('the rendezvous', () => {
  const meet = (
    store: HashStore,
    rank: number,
    worldSize: number,
    backend = 'shm',
    keeper = false,
  ) => rendezvous(store, { rank, worldSize }, backend, 2_000, { keeper, launcher: null });
  const messages = async (all: Promise<unknown>[]): Promise<string[]> =>
    (await Promise.allSettled(all)).map((result) =>
      result.status === 'rejected' ? (result.reason as Error).message : 'no error',
    );

  it('gives all ranks the same list, run and token', async () => {
    const store = new HashStore();
    const found = await Promise.all(
      [0, 1, 2].map((rank) => meet(store, rank, 3, 'shm', rank === 0)),
    );
    assert.deepEqual(found[1], found[0]);
    assert.deepEqual(found[2], found[0]);
    assert.equal(new Set(found[0]?.hosts).size, 1);
    assert.ok(Number.isSafeInteger(found[0]?.token));
  });

  it('fails on all ranks if a rank is taken twice, or worlds or backends differ', async () => {
    const twice = new HashStore();
    for (const text of await messages([meet(twice, 0, 3), meet(twice, 1, 3), meet(twice, 1, 3)]))
      assert.match(text, /rank 1 was taken twice: by process \d+ on .* and by process \d+/);
    const sizes = new HashStore();
    for (const text of await messages([meet(sizes, 0, 2), meet(sizes, 1, 3)]))
      assert.match(text, /rank 1 .* has a world of 3 ranks, others one of 2/);
    const backends = new HashStore();
    for (const text of await messages([meet(backends, 0, 2, 'shm'), meet(backends, 1, 2, 'gloo')]))
      assert.match(text, /rank 0 was given the backend shm, rank 1 gloo/);
  });

  it('refuses shared memory for ranks on several machines, with advice', async () => {
    const agreement = {
      hosts: ['a', 'a', 'b'],
      hostNames: ['node1', 'node1', 'node2'],
      pids: [1, 2, 3],
      run: 'x',
      token: 1,
      random: { seed: 0, offset: 0 },
    };
    const around = { agreement, rank: 0, store: new HashStore(), host: null, timeoutMs: 1_000 };
    await assert.rejects(
      chooseEngines('initProcessGroup', parseBackend('initProcessGroup', 'shm'), around),
      (error: DistributedError) =>
        error instanceof DistributedError &&
        /rank 0 \(on node1\) and rank 2 \(on node2\) share no memory.*gloo for CPU tensors.*Name no backend, or 'cpu:gloo'/.test(
          error.message,
        ),
    );
  });
});
