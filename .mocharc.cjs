module.exports = {
  spec: ['test/**/*.test.ts'],
  require: ['./test/hooks.ts'],
  timeout: 20000,
  forbidOnly: Boolean(process.env.CI),
};
