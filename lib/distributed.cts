// What `require('shardwise/distributed')` gives: the same module objects as `import`.
import entry = require('./distributed.js');
export = entry;
