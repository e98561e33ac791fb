{ "targets": [{ "target_name": "shardwise", "type": "none", "actions": [{
    "action_name": "cmake_build", "message": "Building through CMake",
    "inputs":  ["<(module_root_dir)/CMakeLists.txt"],
    "outputs": ["<(module_root_dir)/build/<(CONFIGURATION_NAME)/shardwise.node"],
    "action":  ["node", "<(module_root_dir)/scripts/build-native.cjs", "--cmake", "<(CONFIGURATION_NAME)"] }] }] }
