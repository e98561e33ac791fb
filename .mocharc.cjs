// Suites that need a GPU are *.gpu.test.ts: SHARDWISE_TEST_GPU=auto (they skip themselves and are counted), require, off.
const gpu = process.env.SHARDWISE_TEST_GPU;
const named = process.argv.slice(2).some((argument) => argument.endsWith('.test.ts'));
module.exports = {
  // Those that build the addon take the longest, so they go first.
  spec: named ? [] : ['test/packaging/*.test.ts', 'test/!(packaging)/**/*.test.ts'],
  ignore: gpu === 'off' ? ['test/**/*.gpu.test.ts'] : [],
  require: ['./test/hooks.ts'],
  timeout: 20000,
  forbidOnly: Boolean(process.env.CI),
  // Two files at a time, each worker with its own JavaScript thread. On GPUs one after the other: they would share memory and time of a device.
  parallel: !named && gpu !== 'require',
  jobs: 2,
};
