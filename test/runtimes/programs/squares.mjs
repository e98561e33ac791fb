// The dataset of data.mjs, which worker threads import.
export default { length: 7, get: (index) => index * index };
