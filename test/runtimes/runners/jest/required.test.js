const { trains } = require('../program.cjs');

test('is required', trains);
