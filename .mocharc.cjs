// Suites that need a GPU are *.gpu.test.ts: SHARDWISE_TEST_GPU=auto (they skip themselves and are
// counted), require, off. SHARDWISE_TEST_BODIES=BACKEND compiles the body of every test.
const {
  SHARDWISE_TEST_ALONE: alone,
  SHARDWISE_TEST_GPU: gpu,
  SHARDWISE_TEST_BODIES: bodies,
} = process.env;
const named = process.argv.slice(2).some((argument) => argument.endsWith('.test.ts'));
// Two files at a time, each worker with its own JavaScript thread. On GPUs one after the other:
// they would share memory and time of a device.
const together = !named && !alone && gpu !== 'require';
// Those that compile and those that train take the longest, so they go first. What is named twice
// would run twice. Runtimes and platforms have commands of their own.
const longFolders = ['packaging', 'examples', 'seeds'];
const longFiles = [
  'native/host-comm',
  'autograd/memory-of-graph',
  'compile/compiling-ranks',
  'distributed/launch/process-ranks',
  'parallel/features/pairs-of-features',
  'parallel/*/compiled-models',
];
const otherFolders = `!(${[...longFolders, 'runtimes', 'platforms'].join('|')})`;
const otherFiles = `!(${longFiles.map((file) => file.split('/').at(-1)).join('|')})`;
const most = [
  ...longFolders.map((folder) => `${folder}/*`),
  ...longFiles,
  '*',
  `${otherFolders}/**/${otherFiles}`,
].map((files) => `test/${files}.test.ts`);
const compiled = ['parallel', 'dtensor', 'autograd', 'nn', 'optim'].map(
  (folder) => `test/${folder}/**/*.test.ts`,
);
const spec = alone ? ['test/**/*.alone.test.ts'] : bodies ? compiled : most;
module.exports = {
  spec: named ? [] : spec,
  ignore: [
    ...(gpu === 'off' ? ['test/**/*.gpu.test.ts'] : []),
    ...(together ? ['test/**/*.alone.test.ts'] : []),
  ],
  require: ['./test/hooks.ts', ...(bodies ? ['./test/compiled/bodies.ts'] : [])],
  reporter: './scripts/reporter.cjs',
  timeout: 60_000, // a loaded machine is no failure; what must not hang has limits of its own
  forbidOnly: Boolean(process.env.CI),
  parallel: together,
  jobs: 2,
};
