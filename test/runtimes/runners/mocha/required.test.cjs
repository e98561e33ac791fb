const { trains } = require('../program.cjs');

it('is required', trains);
