// What `require('shardwise')` gives: the same module objects as `import`, so there is one Tensor
// class in a process.
import index = require('./index.js');
export = index;
