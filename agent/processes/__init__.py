"""Commands of the bundled worker: started, listened to, kept in the background, ended as whole trees."""
