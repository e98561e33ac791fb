// Suites that need a GPU are *.gpu.test.ts: SHARDWISE_TEST_GPU=auto (they skip themselves and are counted), require, off.
const named = process.argv.slice(2).some((argument) => argument.endsWith('.test.ts'));
module.exports = {
  spec: named ? [] : ['test/**/*.test.ts'],
  ignore: process.env.SHARDWISE_TEST_GPU === 'off' ? ['test/**/*.gpu.test.ts'] : [],
  require: ['./test/hooks.ts'],
  timeout: 20000,
  forbidOnly: Boolean(process.env.CI),
};
